"""A running broker, asked at its admin port."""

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

from ottermq.config import load
from ottermq.errors import OtterError

PASSWORD = "OTTERMQ_PASSWORD"


def options(tags: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """The address of the broker, and the login."""

    def added(command: Callable[..., None]) -> Callable[..., None]:
        for option in (
            click.option(
                "--user",
                metavar="NAME",
                help=f"Log in as this user, who has the tag {tags}. The password comes from"
                f" {PASSWORD}, else it is asked for.  [default: the configuration's default user]",
            ),
            click.option(
                "--config",
                metavar="FILE",
                type=click.Path(path_type=Path, dir_okay=False),
                help="The broker's configuration file.",
            ),
            click.option(
                "--admin",
                metavar="ADDRESS",
                help="The broker's admin port."
                "  [default: what the configuration says, else localhost:15672]",
            ),
        ):
            command = option(command)
        return command

    return added


def ask(
    page: str,
    admin: str | None,
    config: Path | None,
    user: str | None,
    *,
    method: str = "GET",
    patience: float = 10.0,
) -> Any:
    """The page, with a login if the broker wants one. patience: seconds."""
    settings = load(config, os.environ)
    address = admin or str(settings.listen.admin)
    request = urllib.request.Request(f"http://{address}{page}", method=method)
    try:
        return _answer(request, address, patience)
    except _LoginNeeded:
        name, password = settings.auth.default_user, settings.auth.default_password
    if user is not None:
        name = user
        password = os.environ.get(PASSWORD) or click.prompt("Password", hide_input=True, err=True)
    credentials = base64.b64encode(f"{name}:{password}".encode()).decode()
    request.add_header("Authorization", f"Basic {credentials}")
    return _answer(request, address, patience)


def _answer(request: urllib.request.Request, address: str, patience: float) -> Any:
    try:
        with urllib.request.urlopen(request, timeout=patience) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        if error.code == HTTPStatus.UNAUTHORIZED and not request.has_header("Authorization"):
            raise _LoginNeeded from None
        reason = _reason(error)
        if reason is None:
            raise OtterError(f"{address} is no admin port of OtterMQ ({error.code})") from None
        hint = "" if error.code == HTTPStatus.CONFLICT else "; see --user"
        raise OtterError(f"{address} refuses: {reason}{hint}") from None
    except urllib.error.URLError as error:
        raise OtterError(f"no broker answers at {address}: {error.reason}") from None
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise OtterError(f"{address} is no admin port of OtterMQ ({error})") from None


class _LoginNeeded(Exception):
    pass


def _reason(error: urllib.error.HTTPError) -> str | None:
    """Why the broker refuses what it understood."""
    if error.code not in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.CONFLICT):
        return None
    try:
        return str(json.load(error)["reason"])
    except (ValueError, KeyError, TypeError):
        return None
