"""One queue under everything at once, held against a model that fits on a page.

Connections come, go and break at any moment; messages are published, given out, acked, returned,
rejected, got, purged; in between all is stopped and started. The promise: nothing is lost, nothing
is there twice, what was never given out keeps its order, what comes back says so and comes back to
its place.
"""

import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.engine.plane import Client, Inbox, Message, Plane, content
from tests.examples import examples

NAMES = st.integers(0, 2)
SIZES = st.sampled_from([0, 10, 3000])


@dataclass
class Holder:
    """A client and what it holds: tag -> number of the message."""

    client: Client
    held: dict[int, int] = field(default_factory=dict)


class OneQueue(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="model"))
        self.published = 0
        self.gone: set[int] = set()
        self.given: set[int] = set()  # at least once
        self.ready: list[int] = []
        self.holders: dict[int, Holder] = {}
        self.start()

    def start(self) -> None:
        self.plane = Plane(self.folder / "data")
        self.plane.queue("work")
        self.plane.wait(lambda: self.plane.ready("work") == len(self.ready))

    def teardown(self) -> None:
        self.plane.close()
        shutil.rmtree(self.folder)

    # -- the model

    def holder(self, name: int) -> Holder:
        if name not in self.holders:
            self.holders[name] = Holder(self.plane.client())
        return self.holders[name]

    def give(self, holder: Holder, message: Message, no_ack: bool) -> None:
        number = int(message.body)
        assert self.ready and number == self.ready.pop(0)
        assert message.redelivered == (number in self.given)
        self.given.add(number)
        if no_ack:
            self.gone.add(number)
        else:
            holder.held[message.tag] = number

    def back(self, numbers: list[int]) -> None:
        self.ready = sorted(self.ready + numbers)

    # -- what happens

    @rule(
        name=NAMES,
        count=st.integers(1, 30),
        size=st.sampled_from([0, 10, 3000]),
        cut=st.integers(1, 500),
    )
    def publish(self, name: int, count: int, size: int, cut: int) -> None:
        frames = b"".join(
            content(b"%d" % number + b" " * size, "work", pieces=2)
            for number in range(self.published, self.published + count)
        )
        client = self.holder(name).client
        client.feed(frames[:cut])
        client.feed(frames[cut:])
        self.plane.wait(lambda: self.plane.ready("work") == len(self.ready) + count)
        self.ready += range(self.published, self.published + count)
        self.published += count

    @rule(name=NAMES, no_ack=st.booleans())
    def get(self, name: int, no_ack: bool) -> None:
        holder = self.holder(name)
        message = holder.client.get("work", no_ack=no_ack)
        if message is None:
            assert not self.ready
        else:
            self.give(holder, message, no_ack)

    @rule(name=NAMES, prefetch=st.integers(1, 20), no_ack=st.booleans())
    def consume_for_a_while(self, name: int, prefetch: int, no_ack: bool) -> None:
        holder = self.holder(name)
        wanted = len(self.ready) if no_ack else min(prefetch, len(self.ready))
        holder.client.consume("work", "c", prefetch=prefetch, no_ack=no_ack)
        for message in holder.client.messages(wanted):
            self.give(holder, message, no_ack)
        self.plane.engine.cancel_consumer(holder.client.id, 1, b"c", b"")
        assert holder.client.is_quiet()

    @precondition(lambda self: any(each.held for each in self.holders.values()))
    @rule(data=st.data(), multiple=st.booleans(), fate=st.sampled_from(["ack", "nack", "reject"]))
    def settle(self, data: st.DataObject, multiple: bool, fate: str) -> None:
        holder = data.draw(st.sampled_from([each for each in self.holders.values() if each.held]))
        tag = data.draw(st.sampled_from(sorted(holder.held)))
        multiple = multiple and fate != "reject"
        tags = [each for each in holder.held if each <= tag] if multiple else [tag]
        numbers = [holder.held.pop(each) for each in tags]
        if fate == "ack":
            holder.client.ack(tag, multiple)
        elif fate == "nack":
            holder.client.nack(tag, multiple, requeue=True)
        else:
            holder.client.reject(tag, requeue=False)
        if fate == "nack":
            self.back(numbers)
        else:
            self.gone.update(numbers)

    @precondition(lambda self: self.holders)
    @rule(data=st.data(), half=st.binary(max_size=20))
    def break_off(self, data: st.DataObject, half: bytes) -> None:
        """Whatever it was saying."""
        name = data.draw(st.sampled_from(sorted(self.holders)))
        holder = self.holders.pop(name)
        holder.client.feed(content(b"never whole", "work")[: len(half)])
        holder.client.leave()
        self.back(list(holder.held.values()))

    @precondition(lambda self: self.holders)
    @rule(data=st.data())
    def close_a_channel(self, data: st.DataObject) -> None:
        holder = self.holders[data.draw(st.sampled_from(sorted(self.holders)))]
        self.plane.engine.channel_close(holder.client.id, 1, False)
        self.plane.engine.channel_open(holder.client.id, 1)
        holder.client.inboxes[1] = Inbox()
        self.back(list(holder.held.values()))
        holder.held.clear()

    @rule()
    def purge(self) -> None:
        assert self.plane.engine.purge(self.plane.queues["work"])[0] == len(self.ready)
        self.gone.update(self.ready)
        self.ready.clear()

    @rule()
    def restart(self) -> None:
        for holder in self.holders.values():
            self.back(list(holder.held.values()))
        self.holders.clear()
        self.plane.close()
        self.start()

    @invariant()
    def the_counts_are_right(self) -> None:
        held = [number for each in self.holders.values() for number in each.held.values()]
        assert self.plane.ready("work") == len(self.ready)
        assert self.plane.unacked("work") == len(held)
        assert sorted([*self.ready, *held, *self.gone]) == list(range(self.published))
        assert not any(each.client.errors for each in self.holders.values())


OneQueue.TestCase.settings = settings(
    max_examples=examples(25), stateful_step_count=40, deadline=None
)
TestOneQueue = OneQueue.TestCase
