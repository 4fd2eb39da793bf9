"""Failed logins slow their address down, and nobody else."""

import pytest

from ottermq.auth import delays
from ottermq.auth.delays import Delays


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def after(failures: int, host: str = "192.0.2.1") -> tuple[Delays, Clock]:
    clock = Clock()
    slow = Delays(clock)
    for _ in range(failures):
        slow.failed(host)
    return slow, clock


def test_the_first_failures_are_free() -> None:
    slow, _ = after(delays.FREE - 1)
    assert slow.turn("192.0.2.1") == 0


def test_the_time_doubles_with_each_failure_up_to_a_limit() -> None:
    waits = [after(delays.FREE + more)[0].turn("192.0.2.1") for more in (0, 1, 2, 50)]
    first = delays.FIRST
    assert waits == pytest.approx([first, 2 * first, 4 * first, delays.LONGEST])


def test_other_addresses_do_not_wait() -> None:
    slow, _ = after(50)
    assert slow.turn("192.0.2.2") == 0


def test_many_connections_at_once_take_turns_and_then_are_refused() -> None:
    slow, _ = after(50)
    assert [slow.turn("192.0.2.1") for _ in range(4)] == [4.0, 8.0, None, None]


def test_a_turn_that_was_refused_keeps_nobody_waiting_later() -> None:
    slow, clock = after(50)
    for _ in range(1000):
        slow.turn("192.0.2.1")
    clock.now += delays.QUEUE
    assert slow.turn("192.0.2.1") is not None


def test_failures_are_forgotten_with_time_and_cost_no_memory_then() -> None:
    slow, clock = after(50)
    clock.now += 10 * delays.HALF_LIFE
    assert slow.turn("192.0.2.1") == 0
    assert len(slow) == 0


def test_an_ipv6_network_counts_as_one_address() -> None:
    slow, _ = after(50, "2001:db8:1:2::1")
    assert slow.turn("2001:db8:1:2:ffff::9")
    assert slow.turn("2001:db8:1:3::1") == 0


def test_an_ipv4_client_is_the_same_on_either_kind_of_socket() -> None:
    slow, _ = after(50, "::ffff:192.0.2.1")
    assert slow.turn("192.0.2.1")
    assert delays.is_loopback("::ffff:127.0.0.1") and delays.is_loopback("127.3.2.1")
    assert delays.is_loopback("::1") and not delays.is_loopback("192.0.2.1")
    assert not delays.is_loopback("") and not delays.is_loopback("localhost")


def test_the_table_is_bounded_and_the_oldest_go_first() -> None:
    slow, _ = after(0)
    for number in range(delays.MOST_ADDRESSES + 10):
        slow.failed(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}")
    assert len(slow) == delays.MOST_ADDRESSES
