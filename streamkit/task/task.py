"""Task: one stage x one partition, with its state, its positions and its life."""

from collections.abc import Callable, Mapping
from enum import Enum
from functools import partial

import msgspec
from msgspec.structs import replace

from streamkit.errors import Bug
from streamkit.graph.stage import Input, Output, Stage
from streamkit.model.ids import MAX_TIME, TaskId, TopicPartition
from streamkit.model.signal import Signal, TimeSignal, Watermark
from streamkit.operators.step import Statements
from streamkit.progress.channels import Status
from streamkit.progress.pace import Pace
from streamkit.progress.task_clock import ClockState, TaskClock
from streamkit.progress.writers import Writers
from streamkit.state.changelog import CommitRecord
from streamkit.state.task_state import TaskState
from streamkit.state.timers import StoredTimer
from streamkit.task.careful import Careful
from streamkit.task.chain import Chain, TaskScope, bind
from streamkit.task.clock_state import CLOCK, encode_clock, open_clock
from streamkit.task.clocks import Clocks
from streamkit.task.failure_book import FailureBook
from streamkit.task.identity import PlanIdentity
from streamkit.task.positions import Positions
from streamkit.task.singly import Singly
from streamkit.task.time_passes import signal_due
from streamkit.task.time_rules import TimeRules

# (task, store, timer) -> whether the timer was condemned, and is set aside now.
SetTimerAside = Callable[["Task", str, StoredTimer], bool]
# What undoes the records of a task that has been bound.
MakeCareful = Callable[["Task"], Careful]

# (task, signal) -> it is on its way to the stages downstream, behind what the task has sent so far.
Tell = Callable[["Task", Signal], None]

# The rules of a pipeline that has no use for event time.
NO_TIME = TimeRules(False, Writers({}), MAX_TIME, 0, Clocks(lambda: 0, lambda: 0))


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


class Restored(msgspec.Struct):
    """What restoring a task brings: its state and the last commit that is reflected in it."""

    state: TaskState
    positions: dict[TopicPartition, int]
    span: int
    birth: str
    clock: ClockState = ClockState()
    # The plan as it is to be stored with the state; empty for a task that begins.
    plan_row: bytes = b""
    # Positions of partitions that only a plan with more of them gives to the task.
    unread: dict[TopicPartition, int] = {}


class Task:
    """Owns the state, the time and the positions of one partition of one stage."""

    def __init__(
        self,
        task_id: TaskId,
        stage: Stage,
        inputs: Mapping[TopicPartition, Input],
        rules: TimeRules = NO_TIME,
        set_timer_aside: SetTimerAside | None = None,
        make_careful: MakeCareful | None = None,
    ) -> None:
        self.id = task_id
        self.stage = stage
        self.inputs = inputs
        self.rules = rules
        self._set_timer_aside = set_timer_aside
        self._make_careful = make_careful
        # How the stages downstream are told of something in the middle of a span.
        self.tell: Tell | None = None
        self.life = Life.CREATED
        self.changelog = TopicPartition(stage.changelog, task_id.partition)
        # Positions of the open span, and those of the last commit that has ended.
        self.positions = Positions({})
        self.committed: dict[TopicPartition, int] = {}
        # What others have read of partitions that our plan does not know yet; committed as it is.
        self.unread: dict[TopicPartition, int] = {}
        # True if the open span must write a commit record for this task.
        self.moved = False
        # The number of the span in hand, and that of the last commit that has ended.
        self.span = self.committed_span = 0
        self.birth = ""
        self.plan_row = b""
        self.book = FailureBook()
        # Undoes what fails, while records have failed.
        self.careful: Careful | None = None
        self.wake_at = 0.0
        # How many of its records are run at a time.
        self.pace = Pace()
        self.singly = Singly(self.pace, rules.clocks.now_ms)
        # False until a commit record of ours names us as the owner; the first commit is done at once for that.
        self.announced = False
        self._processing_timers = {each.name for each in stage.stores if each.kind == "processing_timers"}
        self._state: TaskState | None = None
        self._chain: Chain | None = None
        self._clock: TaskClock | None = None
        # The time of the last commit that has ended.
        self.committed_clock = ClockState()

    @property
    def clock(self) -> TaskClock:
        """Event time and timers."""
        if self._clock is None:
            raise Bug(f"task {self.id} has no clock yet")
        return self._clock

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

    def start(self, restored: Restored, outputs: Mapping[str, Statements]) -> None:
        """Take over what was restored and begin to run."""
        self._state = restored.state
        self.committed = dict(restored.positions)
        self.singly.passed(self.committed)
        self.unread = restored.unread
        self.committed_clock = self._with_counts(restored.clock)
        self.committed_span = restored.span
        self.birth = restored.birth
        self.plan_row = restored.plan_row
        self.announced = False
        self.rewind(outputs)
        self.move(Life.RUNNING)

    def _with_counts(self, clock: ClockState) -> ClockState:
        """A restored clock; without event time none is stored, and what this task has counted goes on."""
        return clock if self.rules.is_timed else replace(clock, counts=self.committed_clock.counts)

    def rewind(self, outputs: Mapping[str, Statements]) -> None:
        """Forget everything since the last commit: state, time, positions, and whatever the operators remember."""
        self.state.drop()
        self.positions = Positions(self.committed)
        self.span = self.committed_span
        self.book.begin_span()
        self.moved = not self.announced
        former, self._clock = self._clock, open_clock(self.inputs, self.rules, self.committed_clock)
        if former is not None:
            for topic, source in self._clock.sources.items():
                # When something last came is not undone, or an idle partition would be waited for once more.
                source.heard_ms = former.sources[topic].heard_ms
        if (self.book.timers or self.book.is_suspect) and self._set_timer_aside is not None:
            self._clock.on_condemned(partial(self._set_timer_aside, self))
        self._clock.on_awake(self._tell_awake)
        if self.singly.timers:
            self._clock.pace.keep_single()
        self._chain = bind(
            self.stage, TaskScope(self.id.partition, self.state, self._clock, self.rules, outputs)
        )
        self.careful = self._make_careful(self) if self.book.is_suspect and self._make_careful else None
        for partition in self.inputs:
            if self.is_read_to_its_end(partition):
                self._clock.sources[partition.topic].status = Status.FINISHED

    def _tell_awake(self) -> None:
        """Tell the stages downstream that we are to be waited for, ahead of the records that follow."""
        self.moved = True
        if self.tell is not None and self.shuffles:
            self.tell(self, Watermark(self.clock.announced[1]))

    @property
    def shuffles(self) -> list[Output]:
        """The outputs that carry signals."""
        return [each for each in self.stage.outputs if each.kind == "shuffle"]

    def signal_due(self) -> TimeSignal | None:
        """What the stages downstream should be told with the next commit."""
        if not self.rules.is_timed or not self.shuffles:
            return None
        readers = sum(each.partitions or 0 for each in self.shuffles)
        return signal_due(self.clock, self.rules, readers, self.stage.partitions or 1)

    @property
    def has_finished_unsaid(self) -> bool:
        """Whether all is done that there will ever be to do, and no commit says so yet."""
        return self.clock.is_finished and not self.is_finished

    @property
    def is_finished(self) -> bool:
        """Whether a commit says that all input has ended, all timers have fired and downstream knows it."""
        committed = self.committed_clock
        return committed.fired == MAX_TIME and (
            not self.shuffles or committed.announced[0] == Status.FINISHED
        )

    def is_read_to_its_end(self, partition: TopicPartition) -> bool:
        """Whether this input is bounded and nothing more of it is wanted."""
        source = self.clock.sources.get(partition.topic)
        return source is not None and source.end is not None and self.positions[partition] >= source.end

    def landed(self, positions: Mapping[TopicPartition, int], clock: ClockState, span: int) -> None:
        """A commit with these positions and this time, as this span, has ended."""
        if positions != self.committed or clock.fired != self.committed_clock.fired:
            self.book.in_a_row = 0  # it got further
        self.committed = dict(positions)
        self.committed_clock = clock
        self.committed_span = span
        self.announced = True
        self.singly.passed(positions)
        self.book.landed(positions, clock.fired, self._processing_timers, self.rules.clocks.now_ms())

    def commit_record(self, writer_id: str, plan: PlanIdentity, now_ms: int) -> CommitRecord:
        """The record of the commit that is about to be made."""
        positions: dict[str, dict[int, int]] = {}
        for partition, offset in (*self.unread.items(), *self.positions.items()):
            positions.setdefault(partition.topic, {})[partition.partition] = offset
        return CommitRecord(
            positions=positions,
            writer_id=writer_id,
            generation=plan.generation,
            span=self.span,
            birth=self.birth,
            fingerprint=plan.fingerprint,
            extra={CLOCK: encode_clock(self.clock)} if self.rules.is_timed else {},
            at_ms=now_ms,
        )

    def suspend(self) -> TaskState | None:
        """Give the state away, to be closed by the caller; the task may be restored again."""
        state, self._state, self._chain, self._clock = self._state, None, None, None
        self.careful = None
        return state

    def close(self) -> TaskState | None:
        """Give the task up, and its state away, to be closed by the caller."""
        self.move(Life.CLOSED)
        return self.suspend()
