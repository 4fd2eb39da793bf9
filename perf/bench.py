"""All measurements: `python -m perf.bench [NAME [options]]`, or `make bench ARGS=...`; NAME is
log, amqp, kafka or audit.

Without a name all run, the log first. Run them alone: two cores are few.
"""

import sys
from collections.abc import Sequence

from perf import amqp_bench, audit_bench, kafka_bench, log_bench

BENCHES = {
    "log": log_bench.main,
    "amqp": amqp_bench.main,
    "kafka": kafka_bench.main,
    "audit": audit_bench.main,
}


def main(arguments: Sequence[str]) -> None:
    if not arguments:
        for bench in BENCHES.values():
            bench([])
        return
    name, *options = arguments
    if name not in BENCHES:
        usages = ", ".join(f"{known} --help" for known in BENCHES)
        sys.exit(f"{(__doc__ or '').strip()}\n\nEach explains its options: {usages}")
    BENCHES[name](options)


if __name__ == "__main__":
    main(sys.argv[1:])
