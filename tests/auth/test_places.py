"""Whose password is hashed next."""

import trio
import trio.testing

from ottermq.auth.places import MOST_WAITING, NoPlace, Places


async def test_addresses_take_turns() -> None:
    places, served = Places(1), list[str]()

    async def come(address: str) -> None:
        async with places.place(address):
            served.append(address)
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        async with places.place("first"):
            for _ in range(3):
                nursery.start_soon(come, "crowd")
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(come, "lonely")
            await trio.testing.wait_all_tasks_blocked()
    assert served == ["crowd", "lonely", "crowd", "crowd"]


async def test_a_queue_that_is_too_long_refuses_and_others_still_come_in() -> None:
    places, refused, served = Places(1), list[str](), list[str]()

    async def come(address: str) -> None:
        try:
            async with places.place(address):
                served.append(address)
        except NoPlace:
            refused.append(address)

    async with trio.open_nursery() as nursery:
        async with places.place("first"):
            for _ in range(MOST_WAITING + 7):
                nursery.start_soon(come, "crowd")
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(come, "lonely")
            await trio.testing.wait_all_tasks_blocked()
    assert refused == ["crowd"] * 7
    assert served.count("crowd") == MOST_WAITING and "lonely" in served


async def test_who_has_left_takes_no_place() -> None:
    places, gone, outcomes = Places(1), set[int](), list[str]()

    async def come(number: int) -> None:
        try:
            async with places.place("a", lambda: number not in gone):
                outcomes.append(f"{number} served")
        except NoPlace:
            outcomes.append(f"{number} passed over")

    async with trio.open_nursery() as nursery:
        async with places.place("first"):
            for number in range(MOST_WAITING):
                nursery.start_soon(come, number)
            await trio.testing.wait_all_tasks_blocked()
            gone.update(range(MOST_WAITING))
            nursery.start_soon(come, MOST_WAITING)  # there is room again
            await trio.testing.wait_all_tasks_blocked()
    assert outcomes.count(f"{MOST_WAITING} served") == 1
    assert sum(outcome.endswith("passed over") for outcome in outcomes) == MOST_WAITING


async def test_who_is_cancelled_gives_its_place_back() -> None:
    places = Places(1)
    async with trio.open_nursery() as nursery:

        async def wait() -> None:
            async with places.place("a"):
                await trio.sleep_forever()

        async with places.place("first"):
            nursery.start_soon(wait)
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
    with trio.fail_after(5):
        async with places.place("b"):
            pass
