"""The command line's entry, and the one place where an error becomes a line and an exit code.

Exit codes: 0 done, 1 it failed, 2 the configuration or the command line is wrong.
"""

import logging
import sys
import traceback
from typing import NoReturn

import click

from ottermq import __version__, eventlog
from ottermq.cli.segment import segment
from ottermq.cli.serve import serve
from ottermq.errors import OtterError, StartupError


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="ottermq", message="%(prog)s %(version)s")
def ottermq() -> None:
    """OtterMQ, a message broker: AMQP 0.9.1 and the Kafka protocol on one log."""


ottermq.add_command(serve)
ottermq.add_command(segment)


def main() -> NoReturn:
    try:
        ottermq(prog_name="ottermq")
    except Exception as caught:
        error = eventlog.cause(caught)
        if isinstance(error, OtterError):
            print(f"ottermq: {error}", file=sys.stderr)
            sys.exit(error.exit_code if isinstance(error, StartupError) else 1)
        if eventlog.LOG.isEnabledFor(logging.DEBUG):
            traceback.print_exception(caught)
        hint = "OTTERMQ_LOG__LEVEL=debug shows where"
        print(f"ottermq: internal error: {eventlog.describe(error)} ({hint})", file=sys.stderr)
        sys.exit(1)
    sys.exit(0)
