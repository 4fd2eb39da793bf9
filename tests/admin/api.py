"""Asking a management API, ours or RabbitMQ's, over one connection."""

import base64
import http.client
import json
from collections.abc import Mapping
from types import TracebackType
from typing import Any, NamedTuple

from tests.brokers import PATIENCE

GUEST = "guest:guest"


class Reply(NamedTuple):
    status: int
    value: Any  # of the JSON; None: no body
    headers: Mapping[str, str]  # by names in lower case


class Api:
    """`with Api(address) as api: api.get("queues")`"""

    def __init__(self, address: tuple[str, int], login: str | None = GUEST) -> None:
        self._connection = http.client.HTTPConnection(*address, timeout=PATIENCE)
        self._headers = {}
        if login is not None:
            self._headers["Authorization"] = "Basic " + base64.b64encode(login.encode()).decode()

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        """body: bytes as they are, all else as JSON."""
        raw = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        more = {"Content-Type": "application/json"} if raw is not None else {}
        self._connection.request(
            method, f"/api/{path}", raw, {**self._headers, **more, **(headers or {})}
        )
        answer = self._connection.getresponse()
        text = answer.read()
        found = {name.lower(): value for name, value in answer.getheaders()}
        is_json = found.get("content-type") == "application/json" and text
        plain = is_json and "content-encoding" not in found
        return Reply(answer.status, json.loads(text) if plain else text or None, found)

    def get(self, path: str) -> Any:
        """The value, of what is there."""
        reply = self.ask("GET", path)
        assert reply.status == 200, (path, reply)
        return reply.value

    def put(self, path: str, body: Any = None) -> int:
        return self.ask("PUT", path, body).status

    def post(self, path: str, body: Any = None) -> Reply:
        return self.ask("POST", path, body)

    def delete(self, path: str) -> int:
        return self.ask("DELETE", path).status

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> "Api":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
