"""Broken promises about event time, each as a patch."""

from typing import Any

import msgspec

from streamkit.model.ids import MAX_TIME
from streamkit.model.signal import Watermark
from streamkit.progress import task_clock
from streamkit.progress.channels import Channels, Status
from streamkit.progress.task_clock import ClockState, StepTimers, TaskClock
from streamkit.runtime import loop as loop_module
from streamkit.state.timers import StoredTimer, TimerCells
from streamkit.task import task as task_module
from streamkit.task.clocks import Clocks
from streamkit.task.span_end import SpanEnd
from streamkit.task.task import Task

MINUTE_MS = 60_000


def slowest_input_not_waited_for(patch: Any) -> None:
    """Event time is that of the quickest input."""

    def broken(parts: Any) -> tuple[Status, int]:
        found = list(parts)
        return max(status for status, _ in found), max(watermark for _, watermark in found)

    patch(task_clock, "combine", broken)


def slowest_channel_not_waited_for(patch: Any) -> None:
    """A signal of one channel counts for all of them."""

    def broken(self: Channels, _channel: int, status: Status, watermark: int) -> None:
        self.watermarks = [max(watermark, each) for each in self.watermarks]
        self.statuses = [status] * len(self.statuses)
        self._combined = None

    patch(Channels, "_set", broken)


def promises_too_much(patch: Any) -> None:
    """What is told downstream is ahead of what is true."""
    due = Task.signal_due

    def broken(self: Task) -> Any:
        signal = due(self)
        is_watermark = isinstance(signal, Watermark)
        return Watermark(signal.event_time_ms + 100) if is_watermark else signal

    patch(Task, "signal_due", broken)


def time_not_restored(patch: Any) -> None:
    """A task that starts over knows nothing of the time that it had reached."""
    opened = task_module.open_clock
    patch(task_module, "open_clock", lambda inputs, rules, _state: opened(inputs, rules, ClockState()))


def time_kept_on_rewind(patch: Any) -> None:
    """A dropped span leaves the event time that its records had brought."""
    rewind = Task.rewind

    def broken(self: Task, outputs: Any) -> None:
        if self._clock is not None:
            self.committed_clock = self._clock.snapshot()
        rewind(self, outputs)

    patch(Task, "rewind", broken)


def signals_ahead_of_their_records(patch: Any) -> None:
    """Downstream is told of the time before it has been given what belongs to it."""
    advance = TaskClock.advance

    def broken(self: TaskClock, limit: int) -> bool:
        self.status, watermark = self._combined()
        self.watermark = self.fired = max(self.watermark, watermark)
        return advance(self, 1) or limit == 0

    patch(TaskClock, "advance", broken)


def timers_not_committed(patch: Any) -> None:
    """Timers live in memory only."""
    patch(TimerCells, "freeze", lambda self, _rows, _touched: self._dirty.clear())


def fired_timers_not_removed(patch: Any) -> None:
    """A timer that has fired is still there after a restart."""
    pop = TimerCells.pop_due

    def broken(self: TimerCells, up_to: int) -> StoredTimer | None:
        before = dict(self._dirty)
        timer = pop(self, up_to)
        if timer is not None:
            self._dirty = before
        return timer

    patch(TimerCells, "pop_due", broken)


def timers_kept_on_rewind(patch: Any) -> None:
    """Timers that fired in a dropped span stay fired, and those that it set stay set."""
    patch(TimerCells, "forget", lambda _self: None)


def timers_loaded_once(patch: Any) -> None:
    """What lies behind the horizon is never looked for."""
    load = TimerCells._load

    def broken(self: TimerCells) -> None:
        load(self)
        self._alive.clear()
        self._near.clear()

    patch(TimerCells, "_load", broken)


def timers_fire_late(patch: Any) -> None:
    """A timer fires two minutes late."""
    add = StepTimers.add

    def broken(self: StepTimers, key: bytes, time: int, namespace: bytes = b"") -> None:
        add(self, key, min(time + MINUTE_MS * 2, MAX_TIME), namespace)

    patch(StepTimers, "add", broken)


def announced_before_it_is_told(patch: Any) -> None:
    """A task believes that downstream knows what it never sent."""
    announce = SpanEnd._announce

    def broken(self: SpanEnd, task: Task) -> None:
        if task.span % 3 == 0 and task.signal_due() is not None:
            task.clock.tell()
        else:
            announce(self, task)

    patch(SpanEnd, "_announce", broken)


def intervals_by_the_wall_clock(patch: Any) -> None:
    """Whoever sets the clock on the wall back makes everything wait that long."""
    patch(loop_module, "clocks_of", lambda wall_ms, _elapsed_ms: Clocks(wall_ms, wall_ms))


def wakes_without_a_word(patch: Any) -> None:
    """A task that was idle sends records on, and says only behind them that it is to be waited for."""
    patch(Task, "_tell_awake", lambda self: setattr(self, "moved", True))


def channels_not_committed(patch: Any) -> None:
    """A restart forgets what the channels had said."""
    snapshot = TaskClock.snapshot
    patch(TaskClock, "snapshot", lambda self: msgspec.structs.replace(snapshot(self), channels={}))
