"""Triggers: when a window sends its results on. What `window(..., trigger=...)` takes; one replaces the default.

A trigger is asked at every record and at every timer it has set, and answers with a `Decision`. It remembers nothing
itself: what it must know later is `ctx.state`, one small value per key and window, kept like any state.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from enum import Enum
from typing import Any, Generic, Protocol, TypeVar

from streamkit.errors import InvalidPipeline
from streamkit.windows.window import Window

T = TypeVar("T")


class Decision(Enum):
    """What becomes of a window now."""

    CONTINUE = "continue"
    FIRE = "fire"
    PURGE = "purge"
    FIRE_AND_PURGE = "fire_and_purge"

    @property
    def fires(self) -> bool:
        """Whether results are sent on."""
        return self is Decision.FIRE or self is Decision.FIRE_AND_PURGE

    @property
    def purges(self) -> bool:
        """Whether the contents are dropped; the window itself stays open for more."""
        return self is Decision.PURGE or self is Decision.FIRE_AND_PURGE


class TriggerContext(Protocol):
    """What a trigger may know and do, always for the key and the window in hand."""

    # What the trigger remembers of this window, of its `state_type`; None if nothing. Assign to change it.
    state: Any

    @property
    def merged(self) -> tuple[Any, ...]:
        """In `on_merge`: what was remembered of the windows that became one, where anything was."""
        ...

    @property
    def watermark(self) -> int:
        """Event time has come this far, in ms."""
        ...

    @property
    def now(self) -> int:
        """The clock on the wall, in ms."""
        ...

    def add_event_timer(self, time: int) -> None:
        """Have `on_event_time` called when the watermark reaches this time."""
        ...

    def remove_event_timer(self, time: int) -> None:
        """Forget that timer, if there is one."""
        ...

    def add_processing_timer(self, time: int) -> None:
        """Have `on_processing_time` called when the clock reaches this time, or all input is finished."""
        ...

    def remove_processing_timer(self, time: int) -> None:
        """Forget that timer, if there is one."""
        ...


class Trigger(ABC, Generic[T]):
    """Decides when windows of values `T` fire. One object serves all tasks: keep nothing on `self` that changes."""

    # The type of `ctx.state`, for its codec; None if the trigger remembers nothing.
    state_type: Any = None
    # Which timers it sets or whose clock it reads; fewer means fewer stores.
    uses_event_time: bool = True
    uses_processing_time: bool = True

    @abstractmethod
    def on_record(self, value: T, timestamp: int, window: Window, ctx: TriggerContext) -> Decision:
        """A record has come into the window."""

    def on_event_time(self, time: int, window: Window, ctx: TriggerContext) -> Decision:  # noqa: ARG002
        """An event timer of this window has come due."""
        return Decision.CONTINUE

    def on_processing_time(self, time: int, window: Window, ctx: TriggerContext) -> Decision:  # noqa: ARG002
        """A processing timer of this window has come due."""
        return Decision.CONTINUE

    def on_merge(self, window: Window, ctx: TriggerContext) -> None:
        """Several windows became this one, and a record will follow: set state and timers anew from `ctx.merged`.

        Sessions need it; a trigger that does not define it cannot be given to one.
        """

    def clear(self, window: Window, ctx: TriggerContext) -> None:
        """The window is gone: remove its timers. Its state is removed by itself."""

    @property
    def can_merge(self) -> bool:
        """Whether windows with this trigger may grow together."""
        return type(self).on_merge is not Trigger.on_merge

    def stored_type(self, value_type: Any) -> Any:  # noqa: ARG002 - for triggers that remember a record
        """The type of `ctx.state` in a stream of values of this type; None if nothing is remembered."""
        return self.state_type


class EventTimeTrigger(Trigger[Any]):
    """Fires when the watermark passes the end of the window, and then for each late record that is still allowed."""

    uses_processing_time = False

    def on_record(self, value: Any, timestamp: int, window: Window, ctx: TriggerContext) -> Decision:  # noqa: ARG002
        """As `Trigger.on_record`."""
        if window.max_timestamp <= ctx.watermark:
            return Decision.FIRE
        ctx.add_event_timer(window.max_timestamp)
        return Decision.CONTINUE

    def on_event_time(self, time: int, window: Window, ctx: TriggerContext) -> Decision:  # noqa: ARG002
        """As `Trigger.on_event_time`."""
        return Decision.FIRE if time == window.max_timestamp else Decision.CONTINUE

    def on_merge(self, window: Window, ctx: TriggerContext) -> None:
        """As `Trigger.on_merge`."""
        if window.max_timestamp > ctx.watermark:
            ctx.add_event_timer(window.max_timestamp)

    def clear(self, window: Window, ctx: TriggerContext) -> None:
        """As `Trigger.clear`."""
        ctx.remove_event_timer(window.max_timestamp)


class ProcessingTimeTrigger(Trigger[Any]):
    """Fires when the clock on the wall reaches the end of the window: its last millisecond is over then."""

    uses_event_time = False

    def on_record(self, value: Any, timestamp: int, window: Window, ctx: TriggerContext) -> Decision:  # noqa: ARG002
        """As `Trigger.on_record`."""
        ctx.add_processing_timer(window.end)
        return Decision.CONTINUE

    def on_processing_time(self, time: int, window: Window, ctx: TriggerContext) -> Decision:  # noqa: ARG002
        """As `Trigger.on_processing_time`."""
        return Decision.FIRE if time == window.end else Decision.CONTINUE

    def on_merge(self, window: Window, ctx: TriggerContext) -> None:
        """As `Trigger.on_merge`."""
        if window.end > ctx.now:
            ctx.add_processing_timer(window.end)

    def clear(self, window: Window, ctx: TriggerContext) -> None:
        """As `Trigger.clear`."""
        ctx.remove_processing_timer(window.end)


class EveryRecordTrigger(Trigger[Any]):
    """Fires at every record, and at nothing else: what emit="update" stands for."""

    uses_event_time = False
    uses_processing_time = False

    def on_record(self, value: Any, timestamp: int, window: Window, ctx: TriggerContext) -> Decision:  # noqa: ARG002
        """As `Trigger.on_record`."""
        return Decision.FIRE

    def on_merge(self, window: Window, ctx: TriggerContext) -> None:
        """Nothing to do: the record that follows fires."""


class CountTrigger(Trigger[Any]):
    """Fires at every `number`-th record of the window; not at its end."""

    state_type = int
    uses_event_time = False
    uses_processing_time = False

    def __init__(self, number: int) -> None:
        if not isinstance(number, int) or number < 1:
            raise InvalidPipeline(
                f"a count trigger fires after a number of records, got {number!r}",
                hint="write for example CountTrigger(100)",
            )
        self.number = number

    def on_record(self, value: Any, timestamp: int, window: Window, ctx: TriggerContext) -> Decision:  # noqa: ARG002
        """As `Trigger.on_record`."""
        count = (ctx.state or 0) + 1
        if count < self.number:
            ctx.state = count
            return Decision.CONTINUE
        ctx.state = None
        return Decision.FIRE

    def on_merge(self, window: Window, ctx: TriggerContext) -> None:  # noqa: ARG002
        """As `Trigger.on_merge`."""
        ctx.state = sum(ctx.merged) or None


class DeltaTrigger(Trigger[T]):
    """Fires when `distance(last, value)` is above the threshold; `last` is the value at which it fired before."""

    uses_event_time = False
    uses_processing_time = False

    def __init__(self, threshold: float, distance: Callable[[T, T], float]) -> None:
        self.threshold = threshold
        self.distance = distance

    def stored_type(self, value_type: Any) -> Any:
        """It remembers a record."""
        return value_type

    def on_record(self, value: T, timestamp: int, window: Window, ctx: TriggerContext) -> Decision:  # noqa: ARG002
        """As `Trigger.on_record`."""
        if ctx.state is None:
            ctx.state = value
            return Decision.CONTINUE
        if self.distance(ctx.state, value) <= self.threshold:
            return Decision.CONTINUE
        ctx.state = value
        return Decision.FIRE


class PurgingTrigger(Trigger[T]):
    """Fires when another one does, and drops the contents every time: each result is of the records since the last."""

    def __init__(self, inner: Trigger[T]) -> None:
        self.inner = inner
        self.uses_event_time = inner.uses_event_time
        self.uses_processing_time = inner.uses_processing_time

    def stored_type(self, value_type: Any) -> Any:
        """What the other one remembers."""
        return self.inner.stored_type(value_type)

    @property
    def can_merge(self) -> bool:
        """As `Trigger.can_merge`."""
        return self.inner.can_merge

    def on_record(self, value: T, timestamp: int, window: Window, ctx: TriggerContext) -> Decision:
        """As `Trigger.on_record`."""
        return _purging(self.inner.on_record(value, timestamp, window, ctx))

    def on_event_time(self, time: int, window: Window, ctx: TriggerContext) -> Decision:
        """As `Trigger.on_event_time`."""
        return _purging(self.inner.on_event_time(time, window, ctx))

    def on_processing_time(self, time: int, window: Window, ctx: TriggerContext) -> Decision:
        """As `Trigger.on_processing_time`."""
        return _purging(self.inner.on_processing_time(time, window, ctx))

    def on_merge(self, window: Window, ctx: TriggerContext) -> None:
        """As `Trigger.on_merge`."""
        self.inner.on_merge(window, ctx)

    def clear(self, window: Window, ctx: TriggerContext) -> None:
        """As `Trigger.clear`."""
        self.inner.clear(window, ctx)


def _purging(decision: Decision) -> Decision:
    return Decision.FIRE_AND_PURGE if decision is Decision.FIRE else decision
