"""Manifest: what a snapshot holds, where its input stood, and how far time had come. Plain data.

`snapshots/manifest_file.py` writes and reads it. Fields are only ever added, with a default; one that an older release must
not overlook is named in `requires`, and it refuses. What an older release would misread raises `FORMAT_VERSION`.
"""

from enum import Enum
from typing import Annotated, Any, Literal

import msgspec

from streamkit.graph.stage import Placement
from streamkit.model.ids import KEY_GROUPS, MIN_TIME
from streamkit.progress.channels import Status
from streamkit.progress.source_clock import SourceState
from streamkit.state.row_groups import EVERY_GROUP, GroupRange, groups_of

FORMAT_VERSION = 1
# What `requires` may name, as far as this release knows.
UNDERSTOOD: frozenset[str] = frozenset()

Size = Annotated[int, msgspec.Meta(ge=0)]
Sha256 = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]


class Kind(Enum):
    """Whose a snapshot is: the runtime's, a person's, or the outcome of a job over history."""

    CHECKPOINT = "checkpoint"
    SAVEPOINT = "savepoint"
    BACKFILL = "backfill"


class Role(Enum):
    """What the rows of a file are: timers stand in another order than the rest."""

    VALUES = "values"
    TIMERS = "timers"


class RowsFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file of rows that are sorted by their keys."""

    format: Literal["rows"] = "rows"
    role: Role
    # From where the manifest lies.
    path: str
    # The least and the greatest group that it has a row of.
    groups: GroupRange
    rows: Size
    bytes: Size
    # Of the file.
    sha256: Sha256
    # Of its rows, whoever wrote them: `snapshots/rows_file.py`.
    rows_sha256: Sha256


class ChangelogEnd(msgspec.Struct, frozen=True, kw_only=True):
    """Up to where a part reflects its task's changelog, and in which life of it."""

    topic: str
    partition: Size
    offset: Size
    birth: str


class TaskTime(msgspec.Struct, frozen=True, kw_only=True):
    """How far time had come in one task; what its sources and channels said stands elsewhere in the manifest.

    At a cut every step has seen the watermark.
    """

    watermark: int = MIN_TIME
    advanced_at_ms: int = 0
    # What downstream was told last: status and event time.
    announced: tuple[Status, int] = (Status.ACTIVE, MIN_TIME)
    counts: dict[str, int] = {}


class SourceTime(msgspec.Struct, frozen=True, kw_only=True):
    """The clock of a source partition, as `SourceState` with names."""

    highest: int = MIN_TIME
    watermark: int = MIN_TIME
    status: Status = Status.ACTIVE
    generator: bytes = b""
    end: int | None = None

    @classmethod
    def of(cls, state: SourceState) -> "SourceTime":
        """What was committed of a source clock."""
        return cls(
            highest=state.highest,
            watermark=state.watermark,
            status=Status(state.status),
            generator=state.generator,
            end=state.end,
        )

    def state(self) -> SourceState:
        """What a source clock goes on from."""
        return SourceState(self.highest, self.watermark, self.status, self.generator, self.end)


class SourcePartition(msgspec.Struct, frozen=True, kw_only=True):
    """Where reading of a source partition goes on."""

    # The offset of the next record to read.
    position: Size
    # The timestamp of a record near it, for a cluster where offsets are others.
    at_ms: int | None = None
    # None if its stage keeps no time.
    time: SourceTime | None = None


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one task."""

    task: Size
    # Which of the task's commits this is; None if no task of a running pipeline wrote it, and likewise below.
    span: Size | None = None
    changelog: ChangelogEnd | None = None
    time: TaskTime = TaskTime()
    files: tuple[RowsFile, ...] = ()


class StoreShare(msgspec.Struct, frozen=True, kw_only=True):
    """How the rows of a store were shared out: among how many tasks, which may be fewer than its stage has.

    By groups, task number t has those of `groups_of(t, tasks)`. By source, it has what came of partition t of the topic.
    """

    placement: Placement
    tasks: Annotated[int, msgspec.Meta(ge=1)]

    def groups(self, task: int) -> GroupRange:
        """Of which groups a task may have rows."""
        return EVERY_GROUP if self.placement == "source" else groups_of(task, self.tasks)


class StagePart(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one stage: a part for each of its tasks."""

    # Whether it may have another number of tasks; what is true of the state of each store, that says itself.
    placement: Placement
    tasks: Annotated[int, msgspec.Meta(ge=1)]
    stores: dict[str, StoreShare] = {}
    # For each shuffle that it reads what its channels had said: the same in every task.
    channels: dict[str, list[tuple[int, Status]]] = {}
    parts: tuple[Part, ...]
    # By name, what steps keep beside their state; nothing does so far.
    operator_state: dict[str, Any] = {}


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """One snapshot of a pipeline."""

    format: int = FORMAT_VERSION
    requires: tuple[str, ...] = ()
    kind: Kind
    id: str
    pipeline: str
    # Of the pipeline's internal topics.
    generation: Size
    # The number of the cut, if one made it.
    cut: Annotated[int, msgspec.Meta(ge=1)] | None = None
    at_ms: int
    engine: Literal["live", "spark"] = "live"
    # How a job over history ran: in the order of time, or each key to its end.
    order: Literal["replay", "complete"] | None = None
    # Whether bounded and unbounded input alike was ended first, so that there is nothing to go on with.
    drained: bool = False
    key_groups: int = KEY_GROUPS
    # What stored state depends on, as `graph/fingerprint.py` describes it, and the digest of that.
    plan: dict[str, Any] = {}
    fingerprint: str = ""
    # Topic to partition.
    sources: dict[str, dict[int, SourcePartition]]
    stages: dict[str, StagePart]
    # Of all the rest; made when it is written.
    digest: str = ""

    def files(self) -> list[RowsFile]:
        """Every file that it names."""
        return [file for stage in self.stages.values() for part in stage.parts for file in part.files]
