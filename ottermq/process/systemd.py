"""Report our state to systemd (sd_notify): one datagram to the socket it names, if it does."""

import os
import socket


def notify(state: str) -> None:
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    if address.startswith("@"):
        address = "\0" + address[1:]  # an abstract name
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.setblocking(False)
        try:
            sock.sendto(state.encode(), address)
        except OSError:
            pass  # a manager that doesn't listen must not stop us
