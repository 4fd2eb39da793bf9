"""`ottermq kafka`: how a running broker looks through the Kafka door, asked at its admin port."""

import http.client
import json
import os
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import click

from ottermq.admin.http import HIDDEN
from ottermq.config import load
from ottermq.errors import OtterError

PATIENCE = 10.0  # seconds


@click.group()
def kafka() -> None:
    """What Kafka clients find, and what they don't."""


@kafka.command()
@click.option(
    "--admin",
    metavar="ADDRESS",
    help="The broker's admin port.  [default: what the configuration says, else localhost:15672]",
)
@click.option(
    "--config",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The broker's configuration file.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def hidden(admin: str | None, config: Path | None, as_json: bool) -> None:
    """List the queues that Kafka clients can't see because of their names.

    Kafka's topics have at most 249 letters, digits, dots, underscores and hyphens.
    """
    told = _ask(admin or str(load(config, os.environ).listen.admin), HIDDEN)
    if as_json:
        click.echo(json.dumps(told))
    else:
        for name in told["queues"]:
            click.echo(name)


def _ask(address: str, page: str) -> Any:
    try:
        with urllib.request.urlopen(f"http://{address}{page}", timeout=PATIENCE) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        raise OtterError(f"{address} is no admin port of OtterMQ ({error.code})") from None
    except urllib.error.URLError as error:
        raise OtterError(f"no broker answers at {address}: {error.reason}") from None
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise OtterError(f"{address} is no admin port of OtterMQ ({error})") from None
