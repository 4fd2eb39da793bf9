"""A Kafka client of a few lines, which may say what no library would."""

import socket
import ssl
from types import TracebackType
from typing import Any, Self

from ottermq.kafka import codec
from ottermq.kafka.api import Api
from ottermq.kafka.request import Body
from ottermq.kafka.schema import MESSAGES
from tests.brokers import PATIENCE


class Gone(Exception):
    """The broker has closed the connection."""


class RawClient:
    """`with RawClient(broker.address("kafka")) as raw_client`"""

    def __init__(self, address: tuple[str, int], context: ssl.SSLContext | None = None) -> None:
        plain = socket.create_connection(address, timeout=PATIENCE)
        self.socket = context.wrap_socket(plain, server_hostname=address[0]) if context else plain
        host, port = self.socket.getsockname()[:2]
        self.name = f"{host}:{port}"  # as the broker's log calls it
        self.correlation = 0

    def ask(self, api: Api, body: Body | None = None, version: int | None = None) -> Body:
        """The newest version, unless told otherwise."""
        wanted = MESSAGES[api].versions[1] if version is None else version
        self.correlation += 1
        self.send(codec.encode_request(api, wanted, self.correlation, "raw_client", body or {}))
        correlation, answer = codec.decode_response(api, wanted, self.receive())
        assert correlation == self.correlation
        return answer

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def receive(self) -> bytes:
        """One response, without its size."""
        return self._exactly(int.from_bytes(self._exactly(4), "big"))

    def is_closed(self) -> bool:
        """Waits for it."""
        try:
            return not self.socket.recv(1)
        except ConnectionError:
            return True

    def receive_until_closed(self) -> bytes:
        found = b""
        while part := self.socket.recv(4096):
            found += part
        return found

    def _exactly(self, count: int) -> bytes:
        found = b""
        while len(found) < count:
            part = self.socket.recv(count - len(found))
            if not part:
                raise Gone(self.name)
            found += part
        return found

    # -- logging in

    def authenticate(self, token: bytes) -> Body:
        return self.ask(Api.SASL_AUTHENTICATE, {"auth_bytes": token})

    def log_in(self, user: str = "guest", password: str = "guest") -> Body:
        self.ask(Api.SASL_HANDSHAKE, {"mechanism": "PLAIN"})
        return self.authenticate(f"\0{user}\0{password}".encode())

    def metadata(self, *names: str, **fields: Any) -> list[Body]:
        asked = {"topics": [{"name": name} for name in names] if names else None, **fields}
        topics: list[Body] = self.ask(Api.METADATA, asked)["topics"]
        return topics

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.socket.close()
