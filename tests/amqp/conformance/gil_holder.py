"""The broker, with one thing more: each SIGRTMIN makes it hold the GIL for some seconds, in pure
Python. Nothing else that needs the GIL can happen meanwhile, and that is the point. (The broker
itself ignores SIGUSR1 and SIGUSR2.)"""

import signal
import sys
import time

from ottermq.cli.main import main

SECONDS = 2.0


def hold(*_: object) -> None:
    print("the GIL is held", file=sys.stderr, flush=True)
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        pass
    print("the GIL is free", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.setswitchinterval(3600)  # nobody who asks for it gets it
    signal.signal(signal.SIGRTMIN, hold)
    main()
