"""pauses: which partitions are not read for now, and for what reasons.

Several parts of a worker may want a partition left alone, each for its own reason and time. A partition is read only
while none of them holds it: whoever releases one takes its own reason away, and no other. Only this module calls
`pause` and `resume` of the reader, and everybody who points it at an input does so here: a reader that is told where to
read may hand out a partition that is held, or forget that it is paused.
"""

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from enum import Enum

from streamkit.kafka.ports import Reader
from streamkit.model.ids import TopicPartition


class Pause(Enum):
    """Why a partition is not read."""

    GATHERING = "gathering"  # what lies in the shuffles is read first: `runtime/local.py`
    RESTORE = "restore"  # its task is not ready yet: `runtime/assign.py`


class Pauses:
    """The one owner of what is paused of a worker's inputs.

    A reason outlasts whatever the reader forgets: a partition that is read from another place, or not at all for a
    while, is still held. It ends when it is released, or when the task of the partition leaves.
    """

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._held: dict[Pause, set[TopicPartition]] = {reason: set() for reason in Pause}

    def is_held(self, partition: TopicPartition) -> bool:
        """Whether there is a reason not to read this partition."""
        return any(partition in held for held in self._held.values())

    def hold(self, partition: TopicPartition, reason: Pause) -> None:
        """Do not read this partition until it is released; to hold it twice for one reason is to hold it once."""
        held = self._held[reason]
        if partition not in held:
            held.add(partition)
            self._reader.pause(partition)

    def release(self, partition: TopicPartition, reason: Pause) -> None:
        """Read this partition again, unless there is another reason not to."""
        held = self._held[reason]
        if partition in held:
            held.remove(partition)
            if not self.is_held(partition):
                self._reader.resume(partition)

    def hold_only(self, partitions: AbstractSet[TopicPartition], reason: Pause) -> None:
        """Hold these partitions for this reason, and no others; the reader is told of what changes and of nothing else."""
        before = self._held[reason]
        for partition in before - partitions:
            self.release(partition, reason)
        for partition in partitions - before:
            self.hold(partition, reason)

    def read_from(self, partition: TopicPartition, offset: int) -> None:
        """Point the reader at this place of a partition; one that is held is read from there once it is released."""
        self._reader.seek(partition, offset)
        if self.is_held(partition):
            self._reader.pause(partition)

    def leave(self, partitions: Iterable[TopicPartition]) -> None:
        """The task of these partitions leaves: stop reading them, and forget the reasons that it had."""
        for partition in partitions:
            self._reader.forget(partition)
            for held in self._held.values():
                held.discard(partition)
