"""Triggers that fire again and again: every so often while a window is open, or when nothing else has for a while."""

from datetime import timedelta
from typing import Any, TypeVar

from streamkit.model.duration import above_zero_ms
from streamkit.model.ids import MAX_TIME
from streamkit.windows.triggers import Decision, Trigger, TriggerContext
from streamkit.windows.window import Window

T = TypeVar("T")


class ContinuousEventTimeTrigger(Trigger[Any]):
    """Fires whenever the watermark passes a multiple of `interval` while the window has records, and at its end."""

    # When it fires next.
    state_type = int
    uses_processing_time = False

    def __init__(self, interval: timedelta) -> None:
        self.interval = above_zero_ms(interval, of="the interval of a trigger")

    def on_record(self, value: Any, timestamp: int, window: Window, ctx: TriggerContext) -> Decision:  # noqa: ARG002
        """As `Trigger.on_record`."""
        watermark = ctx.watermark
        if window.max_timestamp <= watermark:
            return Decision.FIRE
        if ctx.state is None:
            # A multiple that the watermark has passed already brings nothing that the next one would not.
            reached = max(timestamp, watermark)
            self._set(reached - reached % self.interval + self.interval, window, ctx)
        return Decision.CONTINUE

    def on_event_time(self, time: int, window: Window, ctx: TriggerContext) -> Decision:
        """As `Trigger.on_event_time`."""
        if time == window.max_timestamp:
            return Decision.FIRE
        if time != ctx.state:
            return Decision.CONTINUE
        # At the end of all input every later multiple would only say the same again.
        self._set(MAX_TIME if ctx.watermark == MAX_TIME else time + self.interval, window, ctx)
        return Decision.FIRE

    def on_merge(self, window: Window, ctx: TriggerContext) -> None:
        """As `Trigger.on_merge`."""
        # What was set for the end of a window that has fired already is over; the record that follows sets it anew.
        ahead = [time for time in ctx.merged if time > ctx.watermark]
        if ahead:
            self._set(min(ahead), window, ctx)

    def clear(self, window: Window, ctx: TriggerContext) -> None:  # noqa: ARG002
        """As `Trigger.clear`."""
        if ctx.state is not None:
            ctx.remove_event_timer(ctx.state)

    def _set(self, time: int, window: Window, ctx: TriggerContext) -> None:
        """Fire next at `time`, or at the end of the window if that comes first; so the end is always reached."""
        ctx.state = min(time, window.max_timestamp)
        ctx.add_event_timer(ctx.state)


class ContinuousProcessingTimeTrigger(Trigger[Any]):
    """Fires at every multiple of `interval` on the wall clock while the window has records, and when it closes."""

    # When it fires next.
    state_type = int

    def __init__(self, interval: timedelta) -> None:
        self.interval = above_zero_ms(interval, of="the interval of a trigger")

    def on_record(self, value: Any, timestamp: int, window: Window, ctx: TriggerContext) -> Decision:  # noqa: ARG002
        """As `Trigger.on_record`."""
        if ctx.state is None:
            now = ctx.now
            self._set(now, now - now % self.interval + self.interval, window, ctx)
        return Decision.CONTINUE

    def on_event_time(self, time: int, window: Window, ctx: TriggerContext) -> Decision:  # noqa: ARG002
        """It sets no such timers: the window closes by event time, and what has come since must not be lost."""
        return Decision.FIRE

    def on_processing_time(self, time: int, window: Window, ctx: TriggerContext) -> Decision:
        """As `Trigger.on_processing_time`."""
        if time != ctx.state:
            return Decision.CONTINUE
        if ctx.watermark < MAX_TIME:
            self._set(time, time + self.interval, window, ctx)
        elif time < window.end < MAX_TIME:
            # All input is finished and nobody waits for the clock: the end of the window is all there is to come.
            self._set(time, window.end, window, ctx)
        else:
            ctx.state = None
        return Decision.FIRE

    def on_merge(self, window: Window, ctx: TriggerContext) -> None:  # noqa: ARG002
        """As `Trigger.on_merge`."""
        if ctx.merged:
            ctx.state = min(ctx.merged)
            ctx.add_processing_timer(ctx.state)

    def clear(self, window: Window, ctx: TriggerContext) -> None:  # noqa: ARG002
        """As `Trigger.clear`."""
        if ctx.state is not None:
            ctx.remove_processing_timer(ctx.state)

    def _set(self, after: int, time: int, window: Window, ctx: TriggerContext) -> None:
        """Fire next at `time`, or at the end of the window if that comes first and is not over already."""
        end = window.end
        ctx.state = end if after < end < time else time
        ctx.add_processing_timer(ctx.state)


class TimeoutTrigger(Trigger[T]):
    """Fires when another one does, or when that has not happened for `timeout` of processing time.

    The time runs from the first record since it last fired or, with `reset_on_record`, from the latest one. When it
    fires, the other one begins anew as well, and nothing fires again before another record comes.
    """

    def __init__(self, inner: Trigger[T], timeout: timedelta, *, reset_on_record: bool = False) -> None:
        self.inner = inner
        self.timeout = above_zero_ms(timeout, of="the timeout of a trigger")
        self.reset_on_record = reset_on_record
        self.uses_event_time = inner.uses_event_time

    def stored_type(self, value_type: Any) -> Any:
        """When the time is over, and what the other one remembers."""
        inner = self.inner.stored_type(value_type)
        inner_or_none = None if inner is None else inner | None
        return tuple[int | None, inner_or_none]  # type: ignore[valid-type]

    @property
    def can_merge(self) -> bool:
        """As `Trigger.can_merge`."""
        return self.inner.can_merge

    def on_record(self, value: T, timestamp: int, window: Window, ctx: TriggerContext) -> Decision:
        """As `Trigger.on_record`."""
        decision = self.inner.on_record(value, timestamp, window, _InnerContext(ctx))
        if decision.fires:
            self._begin_anew(window, ctx)
            return decision
        over_at, inner = ctx.state or (None, None)
        if over_at is not None and self.reset_on_record:
            ctx.remove_processing_timer(over_at)
            over_at = None
        if over_at is None:
            over_at = ctx.now + self.timeout
            ctx.add_processing_timer(over_at)
            ctx.state = (over_at, inner)
        return decision

    def on_event_time(self, time: int, window: Window, ctx: TriggerContext) -> Decision:
        """As `Trigger.on_event_time`."""
        if ctx.state is None:
            return Decision.CONTINUE
        decision = self.inner.on_event_time(time, window, _InnerContext(ctx))
        if decision.fires:
            self._begin_anew(window, ctx)
        return decision

    def on_processing_time(self, time: int, window: Window, ctx: TriggerContext) -> Decision:
        """As `Trigger.on_processing_time`."""
        if ctx.state is None:
            return Decision.CONTINUE
        decision = self.inner.on_processing_time(time, window, _InnerContext(ctx))
        if ctx.state[0] == time:
            decision = Decision.FIRE_AND_PURGE if decision.purges else Decision.FIRE
        if decision.fires:
            self._begin_anew(window, ctx)
        return decision

    def on_merge(self, window: Window, ctx: TriggerContext) -> None:
        """As `Trigger.on_merge`: the time that is over first counts for all."""
        ends = [over_at for over_at, _ in ctx.merged if over_at is not None]
        if ends:
            ctx.state = (min(ends), None)
            ctx.add_processing_timer(min(ends))
        self.inner.on_merge(window, _InnerContext(ctx))

    def clear(self, window: Window, ctx: TriggerContext) -> None:
        """As `Trigger.clear`."""
        if ctx.state is not None and ctx.state[0] is not None:
            ctx.remove_processing_timer(ctx.state[0])
        self.inner.clear(window, _InnerContext(ctx))

    def _begin_anew(self, window: Window, ctx: TriggerContext) -> None:
        self.clear(window, ctx)
        ctx.state = None


class _InnerContext:
    """The context of a trigger inside a TimeoutTrigger: the same, with the other half of the state."""

    __slots__ = ("_ctx",)

    def __init__(self, ctx: TriggerContext) -> None:
        self._ctx = ctx

    @property
    def state(self) -> Any:
        """As `TriggerContext.state`."""
        return None if self._ctx.state is None else self._ctx.state[1]

    @state.setter
    def state(self, new: Any) -> None:
        over_at = None if self._ctx.state is None else self._ctx.state[0]
        self._ctx.state = None if over_at is None and new is None else (over_at, new)

    @property
    def merged(self) -> tuple[Any, ...]:
        """As `TriggerContext.merged`."""
        return tuple(inner for _, inner in self._ctx.merged if inner is not None)

    @property
    def watermark(self) -> int:
        """As `TriggerContext.watermark`."""
        return self._ctx.watermark

    @property
    def now(self) -> int:
        """As `TriggerContext.now`."""
        return self._ctx.now

    def add_event_timer(self, time: int) -> None:
        """As `TriggerContext.add_event_timer`."""
        self._ctx.add_event_timer(time)

    def remove_event_timer(self, time: int) -> None:
        """As `TriggerContext.remove_event_timer`."""
        self._ctx.remove_event_timer(time)

    def add_processing_timer(self, time: int) -> None:
        """As `TriggerContext.add_processing_timer`."""
        self._ctx.add_processing_timer(time)

    def remove_processing_timer(self, time: int) -> None:
        """As `TriggerContext.remove_processing_timer`."""
        self._ctx.remove_processing_timer(time)
