"""The command line: what it prints, and the code it ends with."""

import logging
import subprocess
import sys

import pytest

import ottermq
from ottermq.cli import main as cli
from ottermq.cli import serve
from ottermq.errors import NotFound, StartupError
from tests import brokers


def outcome(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int | str | None:
    monkeypatch.setattr(sys, "argv", ["ottermq", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return ended.value.code


def test_python_m_ottermq_is_the_same_command() -> None:
    assert brokers.run("--version").stdout == f"ottermq {ottermq.__version__}\n"


@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help_lists_the_commands(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], flag: str
) -> None:
    assert outcome(monkeypatch, flag) == 0
    assert "serve" in capsys.readouterr().out


def test_a_start_loads_only_what_a_broker_needs() -> None:
    """Each of these takes longer to load than the log of a small broker to recover."""
    program = """
import sys, ottermq.cli.main as main
main.ottermq.get_command(None, "serve")
print(*sys.modules)
"""
    command = [sys.executable, "-c", program]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    needless = {
        "rich", "yaml", "difflib", "ottermq.cli.segment", "ottermq.definitions.apply", "h11",
        "ottermq.admin.api",
    }  # fmt: skip
    loaded = set(ran.stdout.split())
    assert "ottermq.broker" in loaded
    assert not loaded & needless


def test_an_unknown_command_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert outcome(monkeypatch, "main") == 2
    assert "No such command 'main'" in capsys.readouterr().err


def test_an_unknown_flag_ends_with_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert outcome(monkeypatch, "serve", "--dta", "x") == 2
    assert "--data" in capsys.readouterr().err


def test_a_wrong_setting_is_one_line_and_ends_with_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert outcome(monkeypatch, "serve", "--kafka", "9092") == 2
    assert capsys.readouterr().err == (
        "ottermq: --kafka: listen.kafka = 9092: expected HOST:PORT with a port from 0 to 65535,"
        " such as 127.0.0.1:5672 or [::1]:5672\n"
    )


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (StartupError("no room"), "ottermq: no room\n"),
        (ExceptionGroup("nursery", [NotFound("no such queue")]), "ottermq: no such queue\n"),
        (
            ZeroDivisionError("a\nb"),
            "ottermq: internal error: ZeroDivisionError: a b"
            " (OTTERMQ_LOG__LEVEL=debug shows where)\n",
        ),
    ],
)
def test_whatever_breaks_is_one_line_and_ends_with_1(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: Exception,
    line: str,
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(serve, "load", fail)
    assert outcome(monkeypatch, "serve") == 1
    assert capsys.readouterr().err == line


def test_the_debug_level_shows_where_it_broke(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError

    caplog.set_level(logging.DEBUG, "ottermq")
    monkeypatch.setattr(serve, "load", fail)
    assert outcome(monkeypatch, "serve") == 1
    assert "in fail" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "near"),
    [("serv", "serve"), ("audit integritty", "integrity"), ("serve --confg x", "--config")],
)
def test_a_mistyped_word_is_one_line_with_the_nearest(arguments: str, near: str) -> None:
    ended = brokers.run(*arguments.split())
    assert ended.returncode == 2
    assert ended.stderr.startswith("ottermq: No such ") and ended.stderr.count("\n") == 1
    assert f". Did you mean '{near}'?" in ended.stderr


@pytest.mark.parametrize("group", ["", "audit", "kafka", "segment"])
def test_help_is_not_cut(group: str) -> None:
    ended = brokers.run(*group.split(), "--help")
    commands = ended.stdout.split("Commands:")[1]
    assert ended.returncode == 0 and "..." not in commands
