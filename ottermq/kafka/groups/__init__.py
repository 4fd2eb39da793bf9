"""Consumer groups: their members and the offsets they have committed.

    member.py        a member, its requests and their answers
    roster.py        the members of a group, their leader, the protocol that suits them
    group.py         the rules of Kafka's classic protocol; time and disk are outside
    offsets.py       what a group has committed, and what transactions hold for it
    records.py       all of that as bytes in a log
    coordinator.py   all groups: kept on disk, restored, expired
    membership.py    JoinGroup, SyncGroup, Heartbeat, LeaveGroup, FindCoordinator
    offset_commit.py OffsetCommit, OffsetFetch
    admin.py         DescribeGroups, ListGroups, DeleteGroups, OffsetDelete

A group is of the classic kind; one of KIP-848 would be another class beside group.py with the same
offsets.

AMQP 0.9.1 has no way to name a stream's consumer and to store its offset, so it has no counterpart
of a group's offset: `x-stream-offset` takes a number, and the consumer itself keeps count.
"""

from ottermq.kafka.groups.coordinator import Groups
from ottermq.kafka.groups.member import MemberIdentity
from ottermq.kafka.groups.records import Committed, Place
from ottermq.kafka.groups.settings import GroupSettings, group_settings

__all__ = ["Committed", "GroupSettings", "Groups", "Place", "MemberIdentity", "group_settings"]
