"""All measurements: `python -m perf.bench [log|amqp [options]]`, or `make bench ARGS="amqp ..."`.

Without a name both run, the log first. Run them alone: two cores are few.
"""

import sys
from collections.abc import Sequence

from perf import amqp_bench, log_bench

BENCHES = {"log": log_bench.main, "amqp": amqp_bench.main}


def main(arguments: Sequence[str]) -> None:
    if not arguments:
        for bench in BENCHES.values():
            bench([])
        return
    name, *options = arguments
    if name not in BENCHES:
        sys.exit(f"{(__doc__ or '').strip()}\n\nEach explains its options: log --help, amqp --help")
    BENCHES[name](options)


if __name__ == "__main__":
    main(sys.argv[1:])
