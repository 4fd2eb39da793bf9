"""The command line's entry, and the one place where an error becomes a line and an exit code.

Exit codes: 0 done, 1 it failed, 2 the configuration or the command line is wrong.
"""

import logging
import sys
import traceback
from importlib import import_module
from typing import NoReturn

import click

from ottermq import __version__, eventlog
from ottermq.errors import OtterError, StartupError
from ottermq.garbage import uncollected


class Commands(click.Group):
    """Each command is the module of its name. It is loaded when it is called: a broker that starts
    needn't know how tables are drawn."""

    NAMES = ("audit", "kafka", "segment", "serve")

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.NAMES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.NAMES:
            return None
        with uncollected():
            command: click.Command = getattr(import_module(f"ottermq.cli.{cmd_name}"), cmd_name)
        return command


@click.command(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="ottermq", message="%(prog)s %(version)s")
def ottermq() -> None:
    """OtterMQ, a message broker: AMQP 0.9.1 and the Kafka protocol on one log."""


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
