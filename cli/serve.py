"""`ottermq serve`: the one way to start a broker."""

import os
from pathlib import Path
from typing import Any

import click

from ottermq import broker, eventlog
from ottermq.config import load, log_format
from ottermq.wal import unknown


class Serve(click.Command):
    """Errors of the command line go into the log, in the log's format."""

    def make_context(self, *args: Any, **more: Any) -> click.Context:
        eventlog.set_format(log_format(os.environ))
        return super().make_context(*args, **more)


@click.command(cls=Serve)
@click.option("--config", metavar="FILE", type=click.Path(path_type=Path), help="A YAML file.")
@click.option("--data", metavar="DIR", help="Where the log lives.  [default: ./data]")
@click.option("--definitions", metavar="FILE", help="A RabbitMQ definitions file (JSON).")
@click.option("--amqp", metavar="HOST:PORT", help="[default: localhost:5672]")
@click.option("--kafka", metavar="HOST:PORT", help="[default: localhost:9092]")
@click.option("--admin", metavar="HOST:PORT", help="[default: localhost:15672]")
@click.option(
    unknown.FLAG,
    is_flag=True,
    help="Start though meta.db is lost: logs it doesn't know are set aside in DIR/orphaned-<time>.",
)
def serve(
    config: Path | None,
    data: str | None,
    definitions: str | None,
    amqp: str | None,
    kafka: str | None,
    admin: str | None,
    accept_missing_metadata: bool,
) -> None:
    """Start the broker; SIGTERM or Ctrl-C stops it cleanly, SIGHUP reloads what may change.

    Settings come from built-in defaults, then the file, then the environment
    (OTTERMQ_WAL__SEGMENT_SIZE=32MiB), then these flags; the later wins. Port 0 picks a free one.
    The line "ready" on stderr has the addresses once connections are accepted.
    """
    eventlog.set_format(log_format(os.environ, config))
    flags = {
        ("data",): ("--data", data),
        ("definitions",): ("--definitions", definitions),
        ("listen", "amqp"): ("--amqp", amqp),
        ("listen", "kafka"): ("--kafka", kafka),
        ("listen", "admin"): ("--admin", admin),
    }
    broker.run(
        lambda: load(config, os.environ, flags),
        accept_missing_metadata=accept_missing_metadata,
    )
