"""What a group's life leaves in the log."""

import logging

import pytest

from tests.kafka.group_harness import GroupHarness


def test_rebalances_and_lost_members_are_told(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "ottermq")
    harness = GroupHarness()
    first, second = harness.stable(2)
    assert "group rebalanced group=g generation=2 members=2" in caplog.messages
    caplog.clear()
    for _ in range(4):  # one of them falls silent, the other is told and joins again
        harness.wait(4)
        harness.heartbeat(first)
    harness.join(first)
    lost, again = caplog.messages
    assert lost.startswith(f"group member lost group=g member={second} host=h")
    assert lost.endswith(' reason="session timeout"')
    assert again == "group rebalanced group=g generation=3 members=1"
