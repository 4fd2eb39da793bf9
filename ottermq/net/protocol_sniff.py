"""The protocol that a client seems to speak when it isn't the listener's: for the log."""

KAFKA_KEYS = 100  # more API keys than Kafka has
KAFKA_VERSIONS = 32


def protocol_of(hello: bytes) -> str:
    """By its first bytes, of which there should be eight."""
    if hello.startswith(b"AMQP") and len(hello) >= 8:
        kind, major, minor, revision = hello[4:8]
        if (kind, major) == (1, 1):  # AMQP 0-8 and 0-9 begin with 1, 1
            return f"AMQP {minor // 10}-{minor % 10}" if minor else f"AMQP 0-{revision}"
        return f"AMQP {major}-{minor}-{revision}"
    if hello[:2] == b"\x16\x03":
        return "TLS, on the port for plain connections"
    if hello.split(b" ")[0] in (b"GET", b"HEAD", b"POST", b"PUT", b"OPTIONS", b"DELETE"):
        return "HTTP"
    if _is_kafka(hello):
        return "Kafka"
    return repr(hello[:16])


def _is_kafka(hello: bytes) -> bool:
    """A size, an API key and a version, all of them plausible."""
    if len(hello) < 8 or hello[0] != 0:
        return False
    size, key, version = (int.from_bytes(hello[a:b]) for a, b in ((0, 4), (4, 6), (6, 8)))
    return size >= 8 and key < KAFKA_KEYS and version < KAFKA_VERSIONS
