"""What config.yaml says of the data plane is what the engine is given."""

import dataclasses

from ottermq.config import Config, load
from ottermq.engine.options import engine_options


def test_every_setting_reaches_the_engine() -> None:
    changed = {
        "AMQP__FRAME_MAX": "64KiB", "AMQP__HANDSHAKE_TIMEOUT": "3s",
        "AMQP__MAX_MESSAGE_SIZE": "1MiB", "MEMORY__HIGH_WATERMARK": "256MiB",
        "WAL__ZERO_COPY__MIN_MESSAGE_SIZE": "8KiB", "WAL__PAGE_CACHE__OPEN_FILES": "20",
    }  # fmt: skip
    config = load(environ={f"OTTERMQ_{name}": value for name, value in changed.items()})
    ours, usual = engine_options(config), engine_options(Config())
    differing = {
        field.name
        for field in dataclasses.fields(ours)
        if getattr(ours, field.name) != getattr(usual, field.name)
    }
    assert {
        "frame_max", "handshake_timeout_ms", "max_message_size", "memory_limit", "zero_copy_min",
    } <= differing  # fmt: skip
    assert ours.zero_copy_min == 8 << 10


def test_without_zero_copy_no_message_is_large_enough_for_it() -> None:
    config = load(environ={"OTTERMQ_WAL__ZERO_COPY__ENABLED": "false"})
    assert engine_options(config).zero_copy_min == 0
