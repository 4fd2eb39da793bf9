"""What fails is over; what tells a task to end goes on its way."""

import logging

import pytest
import trio
import trio.lowlevel

from ottermq.contained import contained, is_failure


class Panic(BaseException):
    """As pyo3 raises it for a panic in a Rust library."""


@pytest.mark.parametrize("error", [ValueError("x"), Panic("x"), ExceptionGroup("g", [OSError()])])
def test_an_accident_is_logged_with_who_caused_it_and_is_over(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR, "ottermq")
    with contained("it failed", peer="10.0.0.7:1"):
        raise error
    [line] = caplog.messages
    assert line.startswith("it failed peer=10.0.0.7:1")


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(1), GeneratorExit()])
def test_what_ends_a_process_is_no_accident(error: BaseException) -> None:
    assert not is_failure(error)
    assert not is_failure(BaseExceptionGroup("g", [ValueError(), error]))
    with pytest.raises(type(error)), contained("it failed"):
        raise error


def test_a_cancelled_task_ends(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        with trio.CancelScope() as scope:
            scope.cancel()
            while True:
                with contained("it failed"):
                    await trio.lowlevel.checkpoint()

    trio.run(main)
    assert not caplog.messages
