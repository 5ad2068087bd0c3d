"""Positions: how far a task is in each of its inputs, as the next commit will say it: the least offset that is not done.

The loop goes through a partition in order and is done with a record when it goes on; then the position is where it reads.
A record whose work lasts longer (a call that is waited for) is held when the loop leaves it, and released when its results
are there: until then the position stays in front of it, so that a restart runs it again. Nothing holds a record yet.
"""

from collections.abc import Mapping

from streamkit.model.ids import TopicPartition


class Positions(dict[TopicPartition, int]):
    """By partition the offset before which everything is done. Records are held in the order of their offsets."""

    __slots__ = ("_held", "_read")

    def __init__(self, start: Mapping[TopicPartition, int]) -> None:
        super().__init__(start)
        self._read = dict(start)
        # By partition the records that are not done, in their order.
        self._held: dict[TopicPartition, dict[int, None]] = {}

    def read(self, partition: TopicPartition) -> int:
        """Where the loop goes on."""
        return self._read[partition]

    def advance(self, partition: TopicPartition, offset: int) -> None:
        """The loop goes on here; it is done with what comes before, except for what is held."""
        self._read[partition] = offset
        if not self._held.get(partition):
            self[partition] = offset

    def hold(self, partition: TopicPartition, offset: int) -> None:
        """The loop leaves this record, and it is not done. Not used yet."""
        held = self._held.setdefault(partition, {})
        held[offset] = None
        self[partition] = next(iter(held))

    def release(self, partition: TopicPartition, offset: int) -> None:
        """This record is done, whatever is done before and behind it. Not used yet."""
        held = self._held[partition]
        del held[offset]
        self[partition] = next(iter(held), self._read[partition])
