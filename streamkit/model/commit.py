"""What one span of input causes, on its way to the log: batches of records, positions, and who may write them."""

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Protocol

import msgspec

from streamkit.model.ids import TopicPartition
from streamkit.model.records import Headers


class Guarantee(Enum):
    """What a crash may do to a record's effects."""

    EXACTLY_ONCE = "exactly_once"
    AT_LEAST_ONCE = "at_least_once"
    AT_MOST_ONCE = "at_most_once"


class Batch(Protocol):
    """An output batch under construction for one partition; it becomes bytes once the writer sends it."""

    def append(
        self, index: int, timestamp: int, key: bytes | None, value: bytes | None, headers: Headers
    ) -> object | None:
        """Add record number `index` (0, 1, 2, ...); None if it does not fit any more and was not added."""
        ...

    def size(self) -> int:
        """How many bytes wait here for the writer."""
        ...


class Batches(Protocol):
    """Who makes batches: a writer."""

    batch_bytes_max: int

    def batch(self, bytes_max: int | None = None) -> Batch:
        """A new, empty output batch that is full at `bytes_max` if that is less than `batch_bytes_max`."""
        ...


class OutBatch(msgspec.Struct):
    """A finished output batch and where it goes. Batches of one partition are written in the order given."""

    partition: TopicPartition
    batch: Batch
    count: int


class Member(msgspec.Struct, frozen=True):
    """Proof of membership, captured when tasks are assigned; a stale one is refused by the broker."""

    group: str
    member_id: str
    generation: int


class Commit(msgspec.Struct):
    """Everything that one span of input caused: written together or not at all.

    `changelogs` are what tasks go on from after a crash. Without a transaction they must not be there before the
    `batches` that they speak of.
    """

    batches: Sequence[OutBatch]
    positions: Mapping[TopicPartition, int]
    member: Member
    changelogs: Sequence[OutBatch] = ()

    @property
    def all_batches(self) -> list[OutBatch]:
        """Both, in the order in which they may be written."""
        return [*self.batches, *self.changelogs]
