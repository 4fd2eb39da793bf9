"""Many clients at once, as cheap as they can be: prebuilt frames, one thread, one epoll.

    with Crowd(address) as crowd:
        crowd.connect(10_000)            open, a channel each, and silent
    churned = churn(address, 1000, 30)   come, open a channel, go

And what a broker's process holds: memory of its own, descriptors.
"""

import resource
import selectors
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from pamqp import commands, frame

from tests.amqp.wire import CAPABILITIES, PATIENCE, PROTOCOL_HEADER, Address

UNDER_WAY = 200  # handshakes at a time
HANDSHAKE = (
    frame.marshal(
        commands.Connection.StartOk(
            {"product": "crowd", "capabilities": dict(CAPABILITIES)},
            "PLAIN",
            "\0guest\0guest",
            "en_US",
        ),
        0,
    ),
    frame.marshal(commands.Connection.TuneOk(2047, 131072, 0), 0)
    + frame.marshal(commands.Connection.Open("/"), 0),
    frame.marshal(commands.Channel.Open(), 1),
)
GOODBYE = frame.marshal(commands.Connection.Close(200, "bye", 0, 0), 0)


def memory(pid: int) -> int:
    """RssAnon, in bytes: what is the process's own and not a file's."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) << 10
    raise AssertionError("no RssAnon")


def descriptors(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def raise_file_limit() -> int:
    """How many files we may open."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def best_of(times: int, measure: Callable[[], float], enough: float) -> float:
    """The least of some measurements; a busy machine spoils one, seldom all. Ends with the first
    that is good enough."""
    found = []
    for _ in range(times):
        found.append(measure())
        if found[-1] <= enough:
            break
    return min(found)


class Crowd:
    """Connections that are open and say nothing."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.sockets: list[socket.socket] = []
        self._selector = selectors.DefaultSelector()

    def connect(self, count: int) -> None:
        ready = made = 0
        limit = time.monotonic() + 6 * PATIENCE
        while ready < count:
            while made < count and made - ready < UNDER_WAY:
                self._begin()
                made += 1
            for key, _ in self._selector.select(1):
                if self._step(key):
                    ready += 1
            assert time.monotonic() < limit, f"{ready} of {count} are through"

    def _begin(self) -> None:
        sock = socket.socket()
        sock.setblocking(False)
        sock.connect_ex(self.address)
        self.sockets.append(sock)
        self._selector.register(sock, selectors.EVENT_WRITE, 0)

    def _step(self, key: selectors.SelectorKey) -> bool:
        """Is it through?"""
        sock, step = key.fileobj, key.data
        assert isinstance(sock, socket.socket)
        if step == 0:
            sock.send(PROTOCOL_HEADER)
        elif not sock.recv(1 << 16):
            raise AssertionError(f"hung up on in step {step}")
        elif step > len(HANDSHAKE):
            self._selector.unregister(sock)
            return True
        else:
            sock.send(HANDSHAKE[step - 1])
        self._selector.modify(sock, selectors.EVENT_READ, step + 1)
        return False

    def leave(self) -> None:
        for sock in self.sockets:
            sock.close()
        self.sockets.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.leave()
        self._selector.close()


@dataclass(frozen=True)
class Churned:
    count: int  # connections that were opened and closed as they should
    seconds: float


def churn(address: Address, rate: float, seconds: float) -> Churned:
    """At most that many a second; a broker that can't follow isn't buried under handshakes."""
    selector = selectors.DefaultSelector()
    steps = (PROTOCOL_HEADER, *HANDSHAKE, GOODBYE, b"")
    begin = time.monotonic()
    made = done = 0
    while (now := time.monotonic()) < begin + seconds or made > done:
        assert now < begin + seconds + 3 * PATIENCE, f"{made - done} don't get through"
        due = min((now - begin) * rate, seconds * rate)
        while made < due and made - done < UNDER_WAY and now < begin + seconds:
            sock = socket.socket()
            sock.setblocking(False)
            sock.connect_ex(address)
            selector.register(sock, selectors.EVENT_WRITE, 0)
            made += 1
        for key, _ in selector.select(0.01):
            peer, step = key.fileobj, key.data
            assert isinstance(peer, socket.socket)
            if step and not peer.recv(1 << 16):
                assert step == len(steps), f"hung up on in step {step}"
                selector.unregister(peer)
                peer.close()
                done += 1
            elif step < len(steps):
                peer.send(steps[step])
                selector.modify(peer, selectors.EVENT_READ, step + 1)
    selector.close()
    return Churned(done, time.monotonic() - begin)
