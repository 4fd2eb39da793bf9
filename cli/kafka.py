"""`ottermq kafka`: how a running broker looks to Kafka clients, asked at its admin port."""

import json
from pathlib import Path

import click

from ottermq.admin.paths import HIDDEN
from ottermq.cli import asking
from ottermq.cli.group import Group


@click.group(cls=Group)
def kafka() -> None:
    """What Kafka clients find, and what they don't."""


@kafka.command()
@asking.options("monitoring or administrator")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def hidden(admin: str | None, config: Path | None, user: str | None, as_json: bool) -> None:
    """List the queues that Kafka clients can't see because of their names.

    Kafka's topics have at most 249 letters, digits, dots, underscores and hyphens.
    """
    told = asking.ask(HIDDEN, admin, config, user)
    if as_json:
        click.echo(json.dumps(told))
    else:
        for name in told["queues"]:
            click.echo(name)
