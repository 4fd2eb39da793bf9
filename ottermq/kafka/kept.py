"""Answers that were dear to make, kept encoded for as long as they stay true."""

from collections import OrderedDict
from collections.abc import Hashable

MOST = 256  # answers


class Kept:
    """The newest answers, each good for one state of the topics and the permissions."""

    def __init__(self) -> None:
        self._answers: OrderedDict[Hashable, bytes] = OrderedDict()
        self._state: Hashable = None

    def find(self, state: Hashable, key: Hashable) -> bytes | None:
        if state != self._state:
            self._answers.clear()
            self._state = state
        return self._answers.get(key)

    def keep(self, state: Hashable, key: Hashable, answer: bytes) -> None:
        if state == self._state:
            self._answers[key] = answer
            if len(self._answers) > MOST:
                self._answers.popitem(last=False)
