"""Answers that are expensive to make, kept encoded for as long as they stay true."""

from collections import OrderedDict
from collections.abc import Hashable

MOST = 256  # answers
MOST_BYTES = 16 << 20  # of all of them


class ResponseCache:
    """The newest answers, each good for one state of the topics and the permissions."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._answers: OrderedDict[Hashable, bytes] = OrderedDict()
        self._bytes = 0
        self._state: Hashable = None

    @property
    def size_bytes(self) -> int:
        return self._bytes

    def find(self, state: Hashable, key: Hashable) -> bytes | None:
        if state != self._state:
            self._answers.clear()
            self._bytes = 0
            self._state = state
        return self._answers.get(key)

    def keep(self, state: Hashable, key: Hashable, answer: bytes) -> None:
        if state != self._state or len(answer) > self._most_bytes or key in self._answers:
            return
        self._answers[key] = answer
        self._bytes += len(answer)
        while len(self._answers) > MOST or self._bytes > self._most_bytes:
            _, gone = self._answers.popitem(last=False)
            self._bytes -= len(gone)
