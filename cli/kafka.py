"""`ottermq kafka`: how a running broker looks through the Kafka door, asked at its admin port."""

import base64
import http.client
import json
import os
import urllib.error
import urllib.request
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from typing import Any

import click

from ottermq.admin.http import HIDDEN
from ottermq.cli.group import Group
from ottermq.config import load
from ottermq.errors import OtterError

PATIENCE = 10.0  # seconds
PASSWORD = "OTTERMQ_PASSWORD"


@click.group(cls=Group)
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
@click.option(
    "--user",
    metavar="NAME",
    help="Log in as this user, who has the tag monitoring or administrator. The password comes from"
    " OTTERMQ_PASSWORD, else it is asked for.  [default: the configuration's default user]",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def hidden(admin: str | None, config: Path | None, user: str | None, as_json: bool) -> None:
    """List the queues that Kafka clients can't see because of their names.

    Kafka's topics have at most 249 letters, digits, dots, underscores and hyphens.
    """
    settings = load(config, os.environ)

    def login() -> tuple[str, str]:
        if user is None:
            return settings.auth.default_user, settings.auth.default_password
        return user, os.environ.get(PASSWORD) or click.prompt("Password", hide_input=True, err=True)

    told = _ask(admin or str(settings.listen.admin), HIDDEN, login)
    if as_json:
        click.echo(json.dumps(told))
    else:
        for name in told["queues"]:
            click.echo(name)


def _ask(address: str, page: str, login: Callable[[], tuple[str, str]]) -> Any:
    """The page, with a login if the broker wants one."""
    request = urllib.request.Request(f"http://{address}{page}")
    try:
        return _answer(request, address)
    except _LoginNeeded:
        credentials = ":".join(login()).encode()
    request.add_header("Authorization", "Basic " + base64.b64encode(credentials).decode())
    return _answer(request, address)


def _answer(request: urllib.request.Request, address: str) -> Any:
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        if error.code == HTTPStatus.UNAUTHORIZED and not request.has_header("Authorization"):
            raise _LoginNeeded from None
        reason = _reason(error)
        if reason is None:
            raise OtterError(f"{address} is no admin port of OtterMQ ({error.code})") from None
        raise OtterError(f"{address} refuses: {reason}; see --user") from None
    except urllib.error.URLError as error:
        raise OtterError(f"no broker answers at {address}: {error.reason}") from None
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise OtterError(f"{address} is no admin port of OtterMQ ({error})") from None


class _LoginNeeded(Exception):
    pass


def _reason(error: urllib.error.HTTPError) -> str | None:
    """What the broker says of a login that it refuses."""
    if error.code not in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        return None
    try:
        return str(json.load(error)["error"])
    except (ValueError, KeyError, TypeError):
        return None
