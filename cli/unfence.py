"""`ottermq unfence`: the operator confirms that the disk works again."""

from pathlib import Path

import click

from ottermq.admin.paths import UNFENCE
from ottermq.cli import asking

PATIENCE = 60.0  # seconds: a new file of the WAL is written


@click.command()
@asking.options("administrator")
def unfence(admin: str | None, config: Path | None, user: str | None) -> None:
    """Let a fenced broker take durable messages again, once its disk is well.

    A failed write or sync of the write-ahead log fences it: nothing durable is taken any more, for
    nobody knows what is on the disk. Find out why first (docs/operations.md, A fence). The log goes
    on in a new file; what was refused stays refused. A restart does the same.
    """
    asking.ask(UNFENCE, admin, config, user, method="POST", patience=PATIENCE)
    click.echo("durable messages are taken again")
