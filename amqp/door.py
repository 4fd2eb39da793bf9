"""Who knocks at the AMQP port is told which protocol we mean, and shown out.

A server that can't take a client's protocol header answers with the one it would take and
closes the socket (AMQP 0.9.1, section 4.2.2). No version is taken yet.
"""

import trio

from ottermq.listeners import part

PROTOCOL_HEADER = b"AMQP\x00\x00\x09\x01"
PATIENCE = 10.0  # seconds for the first bytes, and for taking the answer


async def serve(stream: trio.abc.HalfCloseableStream) -> str:
    with trio.move_on_after(PATIENCE) as patience:
        if not await stream.receive_some(len(PROTOCOL_HEADER)):
            return "left without a word"
        await stream.send_all(PROTOCOL_HEADER)
        await part(stream)
    return "timed out" if patience.cancelled_caught else "sent our protocol header"
