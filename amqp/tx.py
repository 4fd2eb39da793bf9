"""tx: publishes and acks gather in C and happen together, on disk before commit-ok."""

from pamqp.commands import Tx

from ottermq._core import lib
from ottermq.amqp.channel import Channel, Mode
from ottermq.amqp.deferred_replies import Answer
from ottermq.errors import PreconditionFailed
from ottermq.wal.errors import check


def select(channel: Channel, method: Tx.Select) -> bytes:
    if channel.mode is Mode.CONFIRM:
        raise PreconditionFailed("cannot switch from confirm to tx mode")
    if channel.mode is Mode.PLAIN:
        channel.mode = Mode.TX
        channel.context.engine.tx_select(channel.conn.id, channel.number)
    return channel.reply(Tx.SelectOk)


def commit(channel: Channel, method: Tx.Commit) -> Answer:
    """commit-ok leaves when C hears from the disk."""
    _check_transactional(channel)
    return b"" if _is_committed(channel) else _commit_later(channel)


def _is_committed(channel: Channel) -> bool:
    ok = channel.reply(Tx.CommitOk)
    result = channel.context.engine.tx_commit(channel.conn.id, channel.number, ok)
    if result == lib.OM_E_FULL:
        return False
    if result == lib.OM_TX_PARTIAL:
        raise PreconditionFailed("partial tx completion")
    if result != lib.OM_E_GONE:  # else the channel is gone
        check(result, "tx.commit")
    return True


async def _commit_later(channel: Channel) -> bytes:
    """Others keep the disk busy: as their publishes do, the commit waits for its turn."""
    while not _is_committed(channel):
        await channel.context.queues.wait_moved()
    return b""


def rollback(channel: Channel, method: Tx.Rollback) -> bytes:
    _check_transactional(channel)
    channel.context.engine.tx_rollback(channel.conn.id, channel.number)
    return channel.reply(Tx.RollbackOk)


def _check_transactional(channel: Channel) -> None:
    if channel.mode is not Mode.TX:
        raise PreconditionFailed("channel is not transactional")
