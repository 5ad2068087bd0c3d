"""Task: one stage x one partition, with its state, its positions and its life."""

from collections.abc import Mapping
from enum import Enum

import msgspec

from streamkit.errors import Bug
from streamkit.graph.stage import Input, Stage
from streamkit.model.ids import TaskId, TopicPartition
from streamkit.operators.step import Append
from streamkit.runtime.chain import Chain, TaskScope, bind
from streamkit.runtime.identity import PlanIdentity
from streamkit.state.changelog import CommitRecord
from streamkit.state.task_state import TaskState

# One record: its partition and its offset.
Place = tuple[TopicPartition, int]


class Life(Enum):
    """The life of a task.

    CREATED -> RESTORING -> RUNNING <-> WAITING    a failed task waits, then runs again
    every state -> CLOSED                          a lost partition closes its task at once
    """

    CREATED = "created"
    RESTORING = "restoring"
    RUNNING = "running"
    WAITING = "waiting"
    CLOSED = "closed"


ALLOWED: Mapping[Life, frozenset[Life]] = {
    Life.CREATED: frozenset({Life.RESTORING, Life.CLOSED}),
    Life.RESTORING: frozenset({Life.RESTORING, Life.RUNNING, Life.CLOSED}),
    Life.RUNNING: frozenset({Life.RESTORING, Life.WAITING, Life.CLOSED}),
    Life.WAITING: frozenset({Life.RESTORING, Life.RUNNING, Life.CLOSED}),
    Life.CLOSED: frozenset(),
}


class Condemned(msgspec.Struct, frozen=True):
    """Why a record will be set aside when it is reached again."""

    step: str
    error: str
    traceback: str


class Restored(msgspec.Struct):
    """What restoring a task brings: its state and the last commit that is reflected in it."""

    state: TaskState
    positions: dict[TopicPartition, int]
    span: int
    birth: str


class Task:
    """Owns the state and the positions of one partition of one stage."""

    def __init__(self, task_id: TaskId, stage: Stage, inputs: Mapping[TopicPartition, Input]) -> None:
        self.id = task_id
        self.stage = stage
        self.inputs = inputs
        self.life = Life.CREATED
        self.changelog = TopicPartition(stage.changelog, task_id.partition)
        # Positions of the open span, and those of the last commit that has ended.
        self.positions: dict[TopicPartition, int] = {}
        self.committed: dict[TopicPartition, int] = {}
        # True if the open span must write a commit record for this task.
        self.moved = False
        self.span = 0
        self.birth = ""
        # Offsets which the error policy has condemned: they go to the dead letters without being run.
        self.condemned: dict[TopicPartition, dict[int, Condemned]] = {}
        # Keys whose held-back result could not be sent on: it is set aside at the next end of the span.
        self.muted: dict[bytes | None, Condemned] = {}
        # How often a record, or the held-back result of a key, has failed and was tried again.
        self.attempts: dict[Place | bytes | None, int] = {}
        self.wake_at = 0.0
        # False until a commit record of ours names us as the owner; the first commit is done at once for that.
        self.announced = False
        # Failures in a row, of the task or of the record that it is stuck at: the waiting time grows with them.
        self.failures = 0
        self._state: TaskState | None = None
        self._chain: Chain | None = None

    @property
    def state(self) -> TaskState:
        """The restored state."""
        if self._state is None:
            raise Bug(f"task {self.id} has no state yet")
        return self._state

    @property
    def chain(self) -> Chain:
        """The bound chain."""
        if self._chain is None:
            raise Bug(f"task {self.id} is not bound")
        return self._chain

    def move(self, to: Life) -> None:
        """Change the life; an illegal move is a bug."""
        if to not in ALLOWED[self.life]:
            raise Bug(f"task {self.id} cannot go from {self.life.value} to {to.value}")
        self.life = to

    def start(self, restored: Restored, outputs: Mapping[str, Append]) -> None:
        """Take over what was restored and begin to run."""
        self._state = restored.state
        self.committed = dict(restored.positions)
        self.span = restored.span
        self.birth = restored.birth
        self.announced = False
        self.rewind(outputs)
        self.move(Life.RUNNING)

    def rewind(self, outputs: Mapping[str, Append]) -> None:
        """Forget everything since the last commit: state, positions, and whatever the operators remember."""
        self.state.drop()
        self.positions = dict(self.committed)
        self.moved = not self.announced
        self._chain = bind(self.stage, TaskScope(self.id.partition, self.state, outputs))

    def landed(self, positions: Mapping[TopicPartition, int]) -> None:
        """A commit with these positions has ended."""
        self.committed = dict(positions)
        self.failures = 0
        self.announced = True
        self.muted.clear()
        # A record that is still ahead of us keeps its count, or its patience would never end.
        self.attempts = {
            what: count
            for what, count in self.attempts.items()
            if isinstance(what, tuple) and what[1] >= positions.get(what[0], 0)
        }
        for partition, offset in positions.items():
            condemned = self.condemned.get(partition)
            if condemned:
                self.condemned[partition] = {at: why for at, why in condemned.items() if at >= offset}

    def commit_record(self, writer_id: str, plan: PlanIdentity) -> CommitRecord:
        """The record of the commit that is about to be made."""
        positions: dict[str, dict[int, int]] = {}
        for partition, offset in self.positions.items():
            positions.setdefault(partition.topic, {})[partition.partition] = offset
        return CommitRecord(
            positions=positions,
            writer_id=writer_id,
            generation=plan.generation,
            span=self.span,
            birth=self.birth,
            fingerprint=plan.fingerprint,
        )

    def suspend(self) -> None:
        """Close the state, to be restored again: what is committed goes to disk, the rest is forgotten."""
        if self._state is not None:
            self._state.close()
            self._state = None
            self._chain = None

    def close(self) -> None:
        """Give the task up."""
        self.suspend()
        self.move(Life.CLOSED)
