"""The committed offsets of one group, and those that transactions hold for it until they end."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ottermq.kafka.groups.records import (
    Committed,
    HeldKey,
    OffsetKey,
    Place,
    encode_committed,
    encode_key,
)

Writes = dict[bytes, bytes | None]


@dataclass(eq=False)
class Offsets:
    group: str
    committed: dict[Place, Committed] = field(default_factory=dict)
    held: dict[int, dict[Place, Committed]] = field(default_factory=dict)  # by producer id
    # On their way to the disk, how often each: not to be seen yet, nor to be forgotten.
    writing: Counter[Place] = field(default_factory=Counter)

    def __bool__(self) -> bool:
        return bool(self.committed or self.held or self.writing)

    def is_held(self, place: Place) -> bool:
        return any(place in offsets for offsets in self.held.values())

    # -- what to write, and what it means once it is on disk

    def commit(self, offsets: Mapping[Place, Committed]) -> Writes:
        self.writing.update(offsets.keys())
        return {self._key(place): encode_committed(each) for place, each in offsets.items()}

    def committed_now(self, offsets: Mapping[Place, Committed]) -> None:
        self.written(offsets)
        self.committed.update(offsets)

    def written(self, places: Iterable[Place]) -> None:
        """Or not: no longer on their way."""
        self.writing -= Counter(list(places))

    def forget(self, places: Iterable[Place]) -> Writes:
        return {self._key(place): None for place in places}

    def forgotten(self, places: Iterable[Place]) -> None:
        for place in places:
            self.committed.pop(place, None)

    # -- transactions

    def hold(self, producer_id: int, offsets: Mapping[Place, Committed]) -> Writes:
        """From now on readers that ask for stable offsets have to wait."""
        self.held.setdefault(producer_id, {}).update(offsets)
        return {
            encode_key(HeldKey(producer_id, self.group, place)): encode_committed(each)
            for place, each in offsets.items()
        }

    def end(self, producer_id: int, commit: bool) -> Writes:
        held = self.held.get(producer_id, {})
        writes: Writes = {
            encode_key(HeldKey(producer_id, self.group, place)): None for place in held
        }
        return writes | self.commit(held) if commit else writes

    def ended(self, producer_id: int, commit: bool) -> None:
        held = self.held.pop(producer_id, {})
        if commit:
            self.committed_now(held)

    def _key(self, place: Place) -> bytes:
        return encode_key(OffsetKey(self.group, place))
