"""The errors of a log, as classes; the C core's result codes become these."""

from ottermq._core import lib


class LogError(Exception):
    """One line that a user can act on."""


class CorruptData(LogError):
    """Bytes that fail their checksum or can't be what they claim."""


class InvalidArgument(LogError):
    """A number or name that can't be right."""


class StorageFailure(LogError):
    """A system call failed."""


class NoSpace(LogError):
    """The disk is full or below the low-space limit: reads and acks go on."""


class Fenced(LogError):
    """A sync of the WAL failed: durable appends are refused until it is unfenced."""


class Full(LogError):
    """The WAL or the hot tail is full: a state; try again when there is news of room."""


class StaleEpoch(LogError):
    """An append by a leader of an older epoch."""


class OutOfRange(LogError):
    """An offset below the log's start or beyond its end."""


class Deleted(LogError):
    """The log is gone."""


class Gone(LogError):
    """The queue, connection or segment isn't there any more."""


class NotResident(LogError):
    """Not in memory: the reader thread has been asked, the event says when to come back."""


class TimedOut(LogError):
    pass


class Refused(LogError):
    """Not what this producer may write now. `code`: Kafka's."""

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.code = code


class Unreadable(LogError):
    """A segment is damaged or cut under us. `next_offset`: where reading may go on."""

    def __init__(self, text: str, next_offset: int = -1) -> None:
        super().__init__(text)
        self.next_offset = next_offset


_BY_RESULT: dict[int, type[LogError]] = {
    lib.OM_E_SHORT: CorruptData,
    lib.OM_E_CORRUPT: CorruptData,
    lib.OM_E_INVALID: InvalidArgument,
    lib.OM_E_NO_MEMORY: StorageFailure,
    lib.OM_E_IO: StorageFailure,
    lib.OM_E_NO_SPACE: NoSpace,
    lib.OM_E_FENCED: Fenced,
    lib.OM_E_FULL: Full,
    lib.OM_E_STALE_EPOCH: StaleEpoch,
    lib.OM_E_RANGE: OutOfRange,
    lib.OM_E_DELETED: Deleted,
    lib.OM_E_NOT_RESIDENT: NotResident,
    lib.OM_E_TIMEOUT: TimedOut,
    lib.OM_E_UNREADABLE: Unreadable,
    lib.OM_E_GONE: Gone,
    lib.OM_E_EXISTS: InvalidArgument,
    lib.OM_E_LOCKED: InvalidArgument,
    lib.OM_E_STALE: InvalidArgument,
    lib.OM_E_LIMIT: InvalidArgument,
    lib.OM_E_COMPRESSED: InvalidArgument,
    lib.OM_E_REFUSED: InvalidArgument,
    lib.OM_E_UNSUPPORTED: StorageFailure,
    lib.OM_E_INTERRUPTED: StorageFailure,
}


def error_for(result: int, what: str) -> LogError:
    return _BY_RESULT[result](f"{what}: {_text(result)}")


def check(result: int, what: str) -> int:
    """The result itself when it is one; its exception when it isn't."""
    if result < 0:
        raise error_for(result, what)
    return result


def _text(result: int) -> str:
    from ottermq._core import ffi

    text: bytes = ffi.string(lib.om_result_text(result))
    return text.decode()
