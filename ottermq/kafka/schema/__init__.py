"""Every message we speak, as plain data: one table per API."""

from ottermq.kafka.api import Api
from ottermq.kafka.schema import (
    acls,
    cluster,
    committed,
    configs,
    data,
    group_admin,
    groups,
    login,
    offsets,
    one_node,
    producers,
    quotas,
    scram,
    topics,
    transactions,
)
from ottermq.kafka.schema.table import NO_UUID, Field, Message

__all__ = ["MESSAGES", "NO_UUID", "Field", "Message"]

MODULES = (
    acls,
    cluster,
    committed,
    configs,
    data,
    group_admin,
    groups,
    login,
    offsets,
    one_node,
    producers,
    quotas,
    scram,
    topics,
    transactions,
)
MESSAGES: dict[Api, Message] = {
    message.api: message for module in MODULES for message in module.MESSAGES
}
