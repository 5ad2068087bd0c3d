"""whereabouts: what the code of a worker is doing, read off the frames of its thread.

Nothing is noted down while records run. Whoever wants to know looks from outside, as after an exception: which step is
at work, and which record or timer it has in hand.
"""

from types import FrameType

import msgspec

from streamkit.model.ids import TaskId, TopicPartition
from streamkit.operators.fused import is_loop, step_at
from streamkit.progress.source_clock import SourceClock
from streamkit.progress.task_clock import TaskClock
from streamkit.state.timers import StoredTimer
from streamkit.task.chain import start_step
from streamkit.task.engine import Engine
from streamkit.task.ingest import Intake
from streamkit.task.outside import WATERMARKS
from streamkit.task.span_end import SpanEnd
from streamkit.task.task import Task

_RUN_SLICE = Intake.run_slice.__code__
_FIRE = TaskClock._fire_chunk.__code__  # noqa: SLF001 - the frame that has the timer in hand
_SEND_ON = SpanEnd._send_all_on.__code__  # noqa: SLF001 - the frame that sends held-back results on
# A watermark generator sees a record when no loop, or one that is at the next record already, has it in hand.
_OBSERVE = SourceClock.observe_in_hand.__code__
_GENERATE = frozenset({_OBSERVE, SourceClock.tick.__code__, SourceClock.__init__.__code__})
# A step that is being started calls the user's `open`, while its task begins or goes back.
_START_STEP = start_step.__code__
# The frames in which a task is at work without a record, while time passes or as it begins; which variable is the task.
_WITHOUT_RECORD = {
    Engine.pass_time.__code__: "task",
    Task.rewind.__code__: "self",
}

# What holds the loop when it is no step: a client, the disk.
NO_STEP = ""


class Whereabouts(msgspec.Struct, frozen=True):
    """The step at work, and what it has in hand: a record at its place, a timer, a held-back result, or neither.

    A timer may have come due in front of a record, whose place is then known too.
    """

    step: str = NO_STEP
    partition: TopicPartition | None = None
    # -1: a record that was handed over within the worker, and has no place in a log.
    offset: int = -1
    task: TaskId | None = None
    store: str = ""
    timer: StoredTimer | None = None
    # The step that held a result back until now, and the key of the result.
    held_by: str = ""
    key: bytes | None = None
    # The innermost line of code, for a person.
    line: str = ""

    @property
    def held(self) -> tuple[object, ...]:
        """What it has in hand, to tell it from others: `in_hand` is the same for all timers of one time."""
        return (self.task, self.partition, self.offset, self.store, self.timer, self.held_by, self.key)

    @property
    def has_something(self) -> bool:
        """Whether there is something in hand that a loss can be counted against."""
        return self.partition is not None or self.timer is not None or bool(self.held_by)

    @property
    def in_hand(self) -> str:
        """What it has in hand, in words."""
        if self.timer is not None:
            return f"a timer of task {self.task} for {self.timer.time}"
        if self.held_by:
            return f"the result of key {self.key!r} that task {self.task} held back"
        if self.partition is None:
            return "no record"
        if self.offset < 0:
            return f"a record handed over to {self.partition}"
        return f"{self.partition}@{self.offset}"


def whereabouts(innermost: FrameType | None) -> Whereabouts | None:
    """What a thread is doing whose innermost frame this is; None if it runs no code of a pipeline."""
    if innermost is None:
        return None
    found = _Found()
    frame: FrameType | None = innermost
    while frame is not None and not found.is_complete:
        found.see(frame)
        frame = frame.f_back
    if found.task is None:
        return None
    line = f"{innermost.f_code.co_filename}:{innermost.f_lineno} in {innermost.f_code.co_name}"
    # A timer that no record has made due stands alone.
    partition = found.partition if found.timer is None or found.has_record else None
    return Whereabouts(
        found.step,
        partition,
        found.offset,
        found.task,
        found.store,
        found.timer,
        found.held_by,
        found.key,
        line,
    )


class _Found:
    """What the frames have told so far, from the innermost on."""

    def __init__(self) -> None:
        self.step = NO_STEP
        self.partition: TopicPartition | None = None
        self.offset = -1
        self.task: TaskId | None = None
        self.store = ""
        self.timer: StoredTimer | None = None
        self.held_by = ""
        self.key: bytes | None = None
        self.has_record = False
        self.is_complete = False

    def see(self, frame: FrameType) -> None:
        code = frame.f_code
        self.step = self.step or _step_of(frame)
        if code is _FIRE and "timer" in frame.f_locals:
            self.store, self.timer = frame.f_locals["step"].store, frame.f_locals["timer"]
        elif not self.has_record and _has_record(frame):
            self.offset, self.has_record = frame.f_locals["record"].offset, True
        elif code is _RUN_SLICE:
            intake: Intake = frame.f_locals["self"]
            self.partition, self.task, self.is_complete = intake.partition, intake.task.id, True
        elif (name := _WITHOUT_RECORD.get(code)) is not None:
            self.task, self.is_complete = frame.f_locals[name].id, True
        elif code is _SEND_ON:
            self.task, self.held_by = frame.f_locals["task"].id, frame.f_locals["held"].step
            self.key, self.is_complete = frame.f_locals.get("result", (None,))[0], True


def _has_record(frame: FrameType) -> bool:
    """Whether a record is in hand in this frame; what a generator sees is the one before that of the loop around it."""
    return (is_loop(frame) or frame.f_code is _OBSERVE) and "record" in frame.f_locals


def _step_of(frame: FrameType) -> str:
    """The step that is at work in this frame; `NO_STEP` if it is none's."""
    if frame.f_code in _GENERATE:
        return WATERMARKS
    if frame.f_code is _START_STEP:
        name: str = frame.f_locals["step"].name
        return name
    return step_at(frame, frame.f_lineno) or NO_STEP
