"""The window operator: which windows a record goes into, when they fire, when they are over. Flink's algorithm.

A window has three ends. At its last millisecond the default trigger fires it. `lateness` later, at its cleanup, it is
closed for good: contents, what the trigger and the process remember, all of it. A record is late if all its windows are
closed. In between, a record that comes still gets in, and the default trigger fires the window again at once.
"""

from typing import Any, NamedTuple

from streamkit.model.ids import MAX_TIME
from streamkit.operators.stateless import missing_key
from streamkit.operators.step import MAIN, Fire, Ports, Push, Scope, Timers
from streamkit.state.spec import StoreSpec
from streamkit.windows.assigners import Aligned, Counting, Everything
from streamkit.windows.contents import OpenContents, add_element, adding_to_accumulator
from streamkit.windows.definition import WindowDefinition
from streamkit.windows.finishing import Process, finishing
from streamkit.windows.late import late_way
from streamkit.windows.trigger_context import TaskTriggerContext
from streamkit.windows.triggers import Decision
from streamkit.windows.window import Window, decode_namespace, encode_namespace

# Panes whose windows are remembered before all are forgotten; the current ones are back at once.
REMEMBERED_PANES_MAX = 4_096


class OpenPane(NamedTuple):
    """A window, the namespace under which its contents, state and timers are, and when it is closed."""

    window: Window
    namespace: bytes
    cleanup: int


class WindowOperator:
    """One window step in one task."""

    def __init__(self, step: WindowDefinition, outputs: Ports, scope: Scope) -> None:
        windows = step.windows
        self.step = step
        self.trigger = windows.trigger
        self.is_event_time = windows.is_event_time
        self.contents = OpenContents(scope.cells(step.contents_store), scope)
        # At the end of all input timers of both kinds come due; those that are bound last fire first.
        self.processing = _timers(scope, step.processing_timers, self._firing(is_event=False))
        self.event = _timers(scope, step.event_timers, self._firing(is_event=True))
        # Those of the clock by which windows end; None if they have no end.
        self.timers = (self.event if self.is_event_time else self.processing) if windows.has_end else None
        store = step.trigger_store
        self.ctx = TaskTriggerContext(
            None if store is None else scope.cells(store),
            self.event,
            self.processing,
            is_event_time=self.is_event_time,
        )
        self.process: Process | None = None
        if step.process is not None:
            self.process = Process(step, step.process, outputs, scope)
            self.process.ctx.set_clocks(self.event, self.processing)
        self.finish = finishing(step, outputs[MAIN], self.process)
        self.late = late_way(outputs, scope)
        self.add = (
            add_element if step.fold is None or step.keeps_elements else adding_to_accumulator(step.fold)
        )
        self._panes: dict[int, tuple[OpenPane, ...]] = {}

    def bound(self) -> Push:
        """As `Step.bind`."""
        take = self.take
        clock = None if self.is_event_time else self.processing

        def push(key: Any, value: Any, timestamp: int, step: str = self.step.name) -> None:
            if key is None:
                raise missing_key(step)
            take(key, value, timestamp, timestamp if clock is None else clock.now)

        return push

    def take(self, key: bytes, value: Any, timestamp: int, time: int) -> None:
        """Put a record into the windows of this time."""
        is_late = True
        for slot in self._slots(time):
            if not self.is_closed(slot):
                is_late = False
                if self.put(key, slot, value, timestamp):
                    self.expect_cleanup(key, slot)
        if is_late:
            self.late(key, value, timestamp)

    def put(self, key: bytes, slot: OpenPane, value: Any, timestamp: int) -> bool:
        """Add a record to a window and let the trigger decide; whether the window was empty before."""
        pair = key, slot.namespace
        known = self.contents.get(pair)
        self.contents.replace(pair, known, self.add(known, value, timestamp))
        ctx = self.ctx.enter(key, slot.namespace, slot.cleanup)
        decision = self.trigger.on_record(value, timestamp, slot.window, ctx)
        if decision is not Decision.CONTINUE:
            self.act(decision, key, slot, timestamp)
        return known is None

    def act(self, decision: Decision, key: bytes, slot: OpenPane, time: int) -> None:
        """Do what the trigger has decided at this time."""
        pair = key, slot.namespace
        contents = self.contents.get(pair)
        if contents is None:
            return
        kept = contents
        if decision.fires:
            kept = self.finish(key, slot.window, contents, self._result_time(slot.window, time))
        if decision.purges:
            self.contents.replace(pair, contents, None)
        elif kept is not contents:
            self.contents.replace(pair, contents, kept or None)

    def on_timer(self, key: bytes, time: int, namespace: bytes, *, is_event: bool) -> None:
        """A timer of a window has come due: the trigger's, or that of its cleanup."""
        slot = self.find(key, namespace)
        if slot is None:
            return
        ctx = self.ctx.enter(key, namespace, slot.cleanup)
        decide = self.trigger.on_event_time if is_event else self.trigger.on_processing_time
        decision = decide(time, slot.window, ctx)
        if decision is not Decision.CONTINUE:
            self.act(decision, key, slot, time)
        if is_event is not self.is_event_time or self.timers is None:
            return
        if time >= slot.cleanup:
            self.close(key, slot, time)
        elif self.contents.get((key, namespace)) is not None:
            self.expect_more(key, slot, time)

    def find(self, key: bytes, namespace: bytes) -> OpenPane | None:  # noqa: ARG002
        """The window to which a timer belongs; None if there is no such window any more."""
        return self.slot(decode_namespace(namespace), namespace)

    def close(self, key: bytes, slot: OpenPane, time: int) -> None:
        """Forget a window for good."""
        pair = key, slot.namespace
        known = self.contents.get(pair)
        if known is not None:
            self.contents.replace(pair, known, None)
        self.clear_trigger(key, slot)
        if self.process is not None:
            self.process.clear(key, slot.window, self._result_time(slot.window, time))

    def clear_trigger(self, key: bytes, slot: OpenPane) -> None:
        """Let the trigger forget a window."""
        ctx = self.ctx.enter(key, slot.namespace, slot.cleanup)
        self.trigger.clear(slot.window, ctx)
        ctx.forget()

    def slot(self, window: Window, namespace: bytes) -> OpenPane:
        """A window with all that belongs to it. A clock on the wall must have left its last millisecond behind."""
        end = window.max_timestamp if self.is_event_time else window.end
        return OpenPane(window, namespace, min(end + self.step.windows.lateness, MAX_TIME))

    def is_closed(self, slot: OpenPane) -> bool:
        """Whether it is too late for a window. By the clock on the wall nothing is late."""
        return self.is_event_time and self.timers is not None and slot.cleanup <= self.timers.now

    def expect_cleanup(self, key: bytes, slot: OpenPane) -> None:
        """Have a timer for the cleanup of a window; one that is over with all input needs none."""
        if self.timers is not None and slot.cleanup < MAX_TIME:
            self.timers.add(key, slot.cleanup, slot.namespace)

    def expect_more(self, key: bytes, slot: OpenPane, time: int) -> None:  # noqa: ARG002
        """A timer has fired and the window is still open. What it waits for is set, unless another version set it."""
        self.expect_cleanup(key, slot)

    def _slots(self, time: int) -> tuple[OpenPane, ...]:
        """The windows of this time, remembered for its pane."""
        assigner = self.step.windows.assigner
        assert isinstance(assigner, Aligned | Everything | Counting)
        start = time - (time - assigner.offset) % assigner.pane if isinstance(assigner, Aligned) else 0
        slots = self._panes.get(start)
        if slots is None:
            if len(self._panes) >= REMEMBERED_PANES_MAX:
                self._panes.clear()
            windows = assigner.windows(time)
            slots = self._panes[start] = tuple(self.slot(each, encode_namespace(each)) for each in windows)
        return slots

    def _result_time(self, window: Window, time: int) -> int:
        """The timestamp of results: that of the window, or of what made it fire if it has no end."""
        return time if self.timers is None else window.max_timestamp

    def _firing(self, *, is_event: bool) -> Fire:
        def fire(key: bytes, time: int, namespace: bytes, step: str = self.step.name) -> None:  # noqa: ARG001
            self.on_timer(key, time, namespace, is_event=is_event)

        return fire


def _timers(scope: Scope, store: StoreSpec | None, fire: Fire) -> Timers | None:
    return None if store is None else scope.timers(store, fire)
