"""The length limits of ids that clients make up: of a group, an instance, a transaction, a client.

The protocol's own limit is 32,767 bytes. That is more than a record's key may have once something
is put before it, and each id is kept in memory and written to disk at each use. So an id is no
longer than a line. Topics have Kafka's limit (topics.py), users have AMQP's.
"""

LONGEST = 1024  # bytes
LONGEST_CLIENT = 255  # characters of a client id that becomes a part of a member's


def fits(id: str) -> bool:
    return len(id) <= LONGEST and len(id.encode()) <= LONGEST
