"""The audit line."""

import logging

import pytest

from ottermq import auditlog


@pytest.fixture(autouse=True)
def _info(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "ottermq")


def test_an_act_is_one_line_that_says_who_from_where_what_and_with_which_result(
    caplog: pytest.LogCaptureFixture,
) -> None:
    auditlog.record("queue.delete", user="alice", peer="10.0.0.7:4711", what="jobs", vhost="/")
    [line] = caplog.messages
    who = "user=alice peer=10.0.0.7:4711"
    assert line == f"audit act=queue.delete {who} what=jobs result=ok vhost=/"


def test_a_name_can_neither_forge_a_line_nor_fill_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    auditlog.record("topic.create", user=None, peer="p", what="a\nINFO audit " + "x" * 40_000)
    [line] = caplog.messages
    assert "\n" not in line
    assert len(line) < 500
    assert "user=- " in line
