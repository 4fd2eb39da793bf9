"""Failed logins slow down the next ones of that user from there, and hardly anybody else."""

import pytest

from ottermq.auth import login_throttle
from ottermq.auth.login_throttle import LoginThrottle

HOST, USER = "192.0.2.1", "ann"


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def fail(slow: LoginThrottle, host: str = HOST, user: str = USER) -> None:
    """As a login does whose turn came long ago."""
    slow._users.add((login_throttle.network(host), user), slow._clock(), 1)
    slow.failed(host, user)


def after(failures: int, host: str = HOST, user: str = USER) -> tuple[LoginThrottle, Clock]:
    clock = Clock()
    slow = LoginThrottle(clock)
    for _ in range(failures):
        fail(slow, host, user)
    return slow, clock


def test_the_first_failures_are_free() -> None:
    slow, _ = after(login_throttle.FREE - 1)
    assert slow.turn(HOST, USER) == 0


def test_the_time_doubles_with_each_failure_up_to_a_limit() -> None:
    waits = [after(login_throttle.FREE + more)[0].turn(HOST, USER) for more in (0, 1, 2, 20)]
    first = login_throttle.FIRST
    assert waits == pytest.approx([first, 2 * first, 4 * first, login_throttle.LONGEST])


def test_neither_other_addresses_nor_other_users_wait() -> None:
    slow, _ = after(20)
    assert slow.turn("192.0.2.2", USER) == 0
    assert slow.turn(HOST, "bob") == 0


def test_many_failures_of_all_users_slow_the_address_but_not_who_is_known() -> None:
    slow, _ = after(0)
    for number in range(login_throttle.FREE_ADDRESS + 1):
        fail(slow, user=f"user {number}")
    assert slow.turn(HOST, "bob")
    assert slow.turn(HOST, "bob", known=True) == 0


def test_a_known_password_waits_for_failures_of_its_own_user() -> None:
    """Else its answer would be the guide to the right one."""
    slow, _ = after(20)
    assert slow.turn(HOST, USER, known=True)


def test_logins_under_way_count_as_failures_until_they_are_right() -> None:
    slow, _ = after(0)
    assert [slow.turn(HOST, USER) for _ in range(login_throttle.FREE)] == [0] * login_throttle.FREE
    wait = slow.turn(HOST, USER)
    assert wait == pytest.approx(login_throttle.FIRST)
    for _ in range(login_throttle.FREE + 1):
        slow.right(HOST, USER)
    assert slow.turn(HOST, USER) == 0


def test_a_burst_is_refused_after_a_few_turns() -> None:
    slow, _ = after(0)
    turns = [slow.turn(HOST, USER) for _ in range(400)]
    assert sum(turn is not None for turn in turns) < 15


def test_a_turn_that_was_refused_keeps_nobody_waiting_later() -> None:
    slow, clock = after(20)
    for _ in range(1000):
        slow.turn(HOST, USER)
    clock.now += login_throttle.QUEUE
    assert slow.turn(HOST, USER) is not None


def test_failures_are_forgotten_with_time_and_cost_no_memory_then() -> None:
    slow, clock = after(20)
    clock.now += 10 * login_throttle.HALF_LIFE
    assert slow.turn(HOST, USER) == 0
    slow.right(HOST, USER)
    assert len(slow) == 0


def test_an_ipv6_network_counts_as_one_address() -> None:
    slow, _ = after(20, "2001:db8:1:2::1")
    assert slow.turn("2001:db8:1:2:ffff::9", USER)
    assert slow.turn("2001:db8:1:3::1", USER) == 0


def test_an_ipv4_client_is_the_same_on_either_kind_of_socket() -> None:
    slow, _ = after(20, "::ffff:192.0.2.1")
    assert slow.turn(HOST, USER)
    assert login_throttle.is_loopback("::ffff:127.0.0.1") and login_throttle.is_loopback(
        "127.3.2.1"
    )
    assert login_throttle.is_loopback("::1") and not login_throttle.is_loopback("192.0.2.1")
    assert not login_throttle.is_loopback("") and not login_throttle.is_loopback("localhost")


def test_the_tables_are_bounded_and_the_oldest_go_first() -> None:
    slow, _ = after(0)
    for number in range(login_throttle.MOST + 10):
        fail(slow, f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}", "x" * 10_000)
    assert len(slow) == 2 * login_throttle.MOST
