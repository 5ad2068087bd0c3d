"""Names and positions: what identifies a partition, a task, a place in a log."""

from typing import Annotated, NamedTuple, Self

import msgspec

# The number of key groups a pipeline is born with. State keys begin with their group, so a later change of the
# partition count moves whole ranges of groups; the number itself can never change.
KEY_GROUPS = 1024


class TopicPartition(NamedTuple):
    """One partition of one topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}[{self.partition}]"


class Position(int):
    """Where to read on: an offset like any other, and beside it what its writer noted in the group."""

    note: str

    def __new__(cls, offset: int, note: str = "") -> Self:
        """An offset with a note."""
        made = super().__new__(cls, offset)
        made.note = note
        return made


class TaskId(NamedTuple):
    """One stage x one partition: the unit that owns state and is handed out by the group."""

    stage: str
    partition: int

    def __str__(self) -> str:
        return f"{self.stage}/{self.partition}"


# Cuts of a pipeline are numbered from 1 on. A round is the generation of the consumer group in which one was begun.
CutNumber = Annotated[int, msgspec.Meta(ge=1)]
RoundNumber = Annotated[int, msgspec.Meta(ge=0)]

# The ends of time, in milliseconds: before the first watermark, and when all input is finished.
MIN_TIME = -(2**63)
MAX_TIME = 2**63 - 1
