"""The command line's entry, and the one place where an error becomes a line and an exit code.

Exit codes: 0 done, 1 it failed, 2 the configuration or the command line is wrong.
"""

import re
import sys
from importlib import import_module
from typing import Any, NoReturn

import click

from ottermq import __version__, eventlog
from ottermq.cli.group import Group
from ottermq.errors import OtterError, StartupError
from ottermq.process.gc_tuning import uncollected

# click 8.2 and later; before, help is no error.
NO_ARGUMENTS: Any = getattr(click.exceptions, "NoArgsIsHelpError", ())


class Commands(Group):
    """Each command is the module of its name. It is loaded when it is called: a broker that starts
    needn't know how tables are drawn."""

    NAMES = ("audit", "kafka", "segment", "serve", "unfence")

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
        code = ottermq(prog_name="ottermq", standalone_mode=False)
    except NO_ARGUMENTS as no_arguments:
        no_arguments.show()
        sys.exit(no_arguments.exit_code)
    except click.ClickException as wrong:
        eventlog.fatal(_told(wrong))
        sys.exit(wrong.exit_code)
    except click.Abort:
        eventlog.fatal("called off")
        sys.exit(1)
    except Exception as caught:
        error = eventlog.cause(caught)
        if isinstance(error, OtterError):
            eventlog.fatal(str(error))
            sys.exit(error.exit_code if isinstance(error, StartupError) else 1)
        hint = "OTTERMQ_LOG__LEVEL=debug shows where"
        eventlog.fatal(f"internal error: {eventlog.describe(error)} ({hint})", caught)
        sys.exit(1)
    sys.exit(code if isinstance(code, int) else 0)


def _told(error: click.ClickException) -> str:
    """In one line; an unknown command comes with the nearest one."""
    text = " ".join(error.format_message().split()).rstrip(".")
    import difflib  # here and not above: only a typo needs it

    context = error.ctx if isinstance(error, click.UsageError) else None
    if context is None:
        return text
    wrong = getattr(error, "command_name", None)
    if isinstance(context.command, click.Group) and "did you mean" not in text.lower():
        wrong = wrong or next(iter(re.findall(r"^No such command '(.*)'$", text)), None)
        names = context.command.list_commands(context)
        near = difflib.get_close_matches(wrong, names, n=1) if wrong else []
        text += f". Did you mean '{near[0]}'?" if near else ""  # as click does it below us
    return f"{text} ({context.command_path} --help says more)"
