"""What keeps an audit from giving an answer."""

from ottermq.errors import StartupError


class CantRun(StartupError):
    """One line with the remedy. It is no verdict on the data: exit code 2."""

    exit_code = 2
