"""Who knocks at the Kafka port is shown out: no request is understood yet.

Kafka has no greeting to answer with; a closed socket is what its clients know how to handle.
"""

import trio

from ottermq.listeners import part


async def serve(stream: trio.abc.HalfCloseableStream) -> str:
    await part(stream)
    return "not served yet"
