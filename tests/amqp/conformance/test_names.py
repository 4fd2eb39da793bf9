"""Names that nobody could see, or that our own names of logs are made with."""

from collections.abc import Callable

import pytest

from tests.amqp.wire import Client, refused

pytestmark = pytest.mark.ottermq_only("RabbitMQ takes any name")


@pytest.mark.parametrize("control", ["\0", "\x01", "\x1b", "\x7f"])
def test_a_name_with_control_characters_is_refused(
    client: Client, unique: Callable[[str], str], control: str
) -> None:
    name = unique("jobs") + control
    both: dict[str, Callable[[], object]] = {
        "queue": lambda: client.channel().declare(name),
        "exchange": lambda: client.channel().declare_exchange(name, "direct"),
    }
    for kind, declare in both.items():
        with refused(
            406, f"PRECONDITION_FAILED - {kind} name {ascii(name)} holds control characters"
        ):
            declare()
