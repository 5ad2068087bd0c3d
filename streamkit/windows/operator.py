"""The window operator: which windows a record goes into, when they fire, when they are over. Flink's algorithm.

A window has three ends. At its last millisecond the default trigger fires it. `lateness` later, at its cleanup, it is
closed for good: contents, what the trigger and the process remember, all of it. A record is late if all its windows are
closed. In between, a record that comes still gets in, and the default trigger fires the window again at once.
"""

from typing import Any

from streamkit.model.ids import MAX_TIME
from streamkit.operators.stateless import missing_key
from streamkit.operators.step import Fire, Push, Scope, Timers
from streamkit.state.spec import StoreSpec
from streamkit.windows.assigners import Aligned, Counting, Everything
from streamkit.windows.contents import add_element, adding_to_accumulator
from streamkit.windows.definition import WindowDefinition
from streamkit.windows.finishing import Process, finishing
from streamkit.windows.late import late_way
from streamkit.windows.trigger_context import TaskTriggerContext
from streamkit.windows.triggers import Decision
from streamkit.windows.window import Window, decode_namespace, encode_namespace


class WindowOperator:
    """One window step in one task."""

    def __init__(self, step: WindowDefinition, following: Push, scope: Scope) -> None:
        windows = step.windows
        self.step = step
        self.trigger = windows.trigger
        self.contents = scope.window_cells(step.contents_store)
        # At the end of all input timers of both kinds come due; those that are bound last fire first.
        self.processing = _timers(scope, step.processing_timers, self._firing(is_event=False))
        self.event = _timers(scope, step.event_timers, self._firing(is_event=True))
        store = step.trigger_store
        self.ctx = TaskTriggerContext(
            None if store is None else scope.window_cells(store),
            self.event,
            self.processing,
            is_event_time=windows.is_event_time,
        )
        self.process: Process | None = None
        if step.process is not None:
            self.process = Process(step, step.process, following, scope)
            self.process.ctx.set_clocks(self.event, self.processing)
        self.finish = finishing(step, following, self.process)
        self.late = late_way(following, scope, is_sent=windows.sends_late)
        self.add = (
            add_element if step.fold is None or step.keeps_elements else adding_to_accumulator(step.fold)
        )
        self._is_event_time = windows.is_event_time
        self._has_end = windows.has_end
        self._lateness = windows.lateness

    def bound(self) -> Push:
        """As `Step.bind`."""
        take, processing = self.take, self.processing
        is_event_time = self._is_event_time

        def push(key: Any, value: Any, timestamp: int, step: str = self.step.name) -> None:
            if key is None:
                raise missing_key(step)
            if is_event_time:
                take(key, value, timestamp, timestamp)
            else:
                assert processing is not None
                take(key, value, timestamp, processing.now)

        return push

    def take(self, key: bytes, value: Any, timestamp: int, time: int) -> None:
        """Put a record into the windows of this time."""
        assigner = self.step.windows.assigner
        assert isinstance(assigner, Aligned | Everything | Counting)
        is_late = True
        for window in assigner.windows(time):
            if self.is_late(window):
                continue
            is_late = False
            namespace = encode_namespace(window)
            if self.contents.get((key, namespace)) is None:
                self.expect_cleanup(key, window, namespace)
            self.put(key, window, namespace, value, timestamp)
        if is_late:
            self.late(key, value, timestamp)

    def put(self, key: bytes, window: Window, place: bytes, value: Any, timestamp: int) -> None:
        """Add a record to a window whose contents are at `place`, and let the trigger decide."""
        pair = key, place
        self.contents.put(pair, self.add(self.contents.get(pair), value, timestamp))
        ctx = self.ctx.enter(key, encode_namespace(window), self.cleanup(window))
        self.act(self.trigger.on_record(value, timestamp, window, ctx), key, window, place, timestamp)

    def act(self, decision: Decision, key: bytes, window: Window, place: bytes, time: int) -> None:
        """Do what the trigger has decided at this time."""
        if decision is Decision.CONTINUE:
            return
        pair = key, place
        contents = self.contents.get(pair)
        if contents is None:
            return
        if decision.fires:
            kept = self.finish(key, window, contents, window.max_timestamp if self._has_end else time)
            if kept is not contents:
                self.contents.put(pair, kept or None)
        if decision.purges:
            self.contents.delete(pair)

    def on_timer(self, key: bytes, time: int, namespace: bytes, *, is_event: bool) -> None:
        """A timer of a window has come due: the trigger's, or that of its cleanup."""
        window = decode_namespace(namespace)
        place = self.place_of(key, window, namespace)
        if place is None:
            return
        ctx = self.ctx.enter(key, namespace, self.cleanup(window))
        decide = self.trigger.on_event_time if is_event else self.trigger.on_processing_time
        self.act(decide(time, window, ctx), key, window, place, time)
        if is_event is not self._is_event_time or not self._has_end:
            return
        if time >= self.cleanup(window):
            self.close(key, window, place, time)
        elif self.contents.get((key, place)) is not None:
            # Set already, unless the windows had no lateness when this one was opened.
            self.expect_cleanup(key, window, namespace)

    def place_of(self, key: bytes, window: Window, namespace: bytes) -> bytes | None:  # noqa: ARG002
        """Where the contents of a window are; None if there is no such window any more."""
        return namespace

    def close(self, key: bytes, window: Window, place: bytes, time: int) -> None:
        """Forget a window for good."""
        if self.contents.get((key, place)) is not None:
            self.contents.delete((key, place))
        self.clear_trigger(key, window)
        if self.process is not None:
            self.process.clear(key, window, window.max_timestamp if self._has_end else time)

    def clear_trigger(self, key: bytes, window: Window) -> None:
        """Let the trigger forget a window."""
        ctx = self.ctx.enter(key, encode_namespace(window), self.cleanup(window))
        self.trigger.clear(window, ctx)
        ctx.forget()

    def cleanup(self, window: Window) -> int:
        """From this time on the window is closed."""
        return min(window.max_timestamp + self._lateness, MAX_TIME)

    def is_late(self, window: Window) -> bool:
        """Whether the window is closed already. By the clock on the wall nothing is late."""
        if not (self._is_event_time and self._has_end):
            return False
        assert self.event is not None
        return self.cleanup(window) <= self.event.now

    def expect_cleanup(self, key: bytes, window: Window, namespace: bytes) -> None:
        """Have a timer for the cleanup of a window; one that is over with all input needs none."""
        cleanup, timers = self.cleanup(window), self._own_timers()
        if timers is not None and cleanup < MAX_TIME:
            timers.add(key, cleanup, namespace)

    def forget_cleanup(self, key: bytes, window: Window, namespace: bytes) -> None:
        """Have no such timer any more."""
        timers = self._own_timers()
        if timers is not None:
            timers.remove(key, self.cleanup(window), namespace)

    def _own_timers(self) -> Timers | None:
        """Those of the clock by which the windows end."""
        if not self._has_end:
            return None
        return self.event if self._is_event_time else self.processing

    def _firing(self, *, is_event: bool) -> Fire:
        def fire(key: bytes, time: int, namespace: bytes, step: str = self.step.name) -> None:  # noqa: ARG001
            self.on_timer(key, time, namespace, is_event=is_event)

        return fire


def _timers(scope: Scope, store: StoreSpec | None, fire: Fire) -> Timers | None:
    return None if store is None else scope.timers(store, fire)
