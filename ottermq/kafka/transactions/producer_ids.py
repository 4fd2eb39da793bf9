"""Producer ids: numbers that are never given twice, whatever crashes.

A block of them is claimed on disk before the first one is given; a stop wastes the rest of it.
"""

import trio

from ottermq.kafka.statelog import StateLog

KEY = b"producer ids"
BLOCK = 1000


class ProducerIds:
    def __init__(self, state: StateLog) -> None:
        self._state = state
        self._claimed = self._next = int(state.get(KEY) or 0)
        self._line = trio.Lock()

    async def next(self) -> int:
        async with self._line:
            if self._next == self._claimed:
                await self._state.put({KEY: b"%d" % (self._claimed + BLOCK)})
                self._claimed += BLOCK
            self._next += 1
            return self._next - 1
