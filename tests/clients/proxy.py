"""A wire between client and broker that a test can cut: how clients meet a lost connection."""

import socket
import threading
from contextlib import suppress

Address = tuple[str, int]


class Proxy:
    """Listens at `address` and passes everything on, until `cut` or the end of the block. The
    target may be another one after a while, or be away."""

    def __init__(self, target: Address) -> None:
        self.target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address: Address = self._listener.getsockname()
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self.accepted = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                broker = socket.create_connection(self.target)
            except OSError:
                client.close()
                continue
            with self._lock:
                self._open |= {client, broker}
                self.accepted += 1
            for source, sink in ((client, broker), (broker, client)):
                threading.Thread(target=self._pass_on, args=(source, sink), daemon=True).start()

    def _pass_on(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
        self._hang_up({source, sink})

    def _hang_up(self, sockets: set[socket.socket]) -> None:
        for one in sockets:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        with self._lock:
            self._open -= sockets

    def cut(self) -> None:
        """All connections end; new ones are welcome."""
        with self._lock:
            all_open = set(self._open)
        self._hang_up(all_open)

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes accept
        self._listener.close()
        self.cut()

    def __enter__(self) -> "Proxy":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
