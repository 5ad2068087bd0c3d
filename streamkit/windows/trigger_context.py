"""What a trigger sees of the task it runs in; keeps the promises of `TriggerContext`."""

from typing import Any, Self

from streamkit.errors import Misconfigured
from streamkit.operators.step import Timers
from streamkit.state.value_cells import ValueCells


class TaskTriggerContext:
    """One per task, pointed at the key and the window in hand before each call.

    The timer of the window's cleanup is the engine's: a trigger may add one for the same time, but not remove it.
    """

    __slots__ = ("_cells", "_cleanup", "_event", "_is_event_time", "_pair", "_processing", "merged")

    def __init__(
        self,
        cells: ValueCells | None,
        event: Timers | None,
        processing: Timers | None,
        *,
        is_event_time: bool,
    ) -> None:
        self.merged: tuple[Any, ...] = ()
        self._cells = cells
        self._event = event
        self._processing = processing
        self._is_event_time = is_event_time
        self._pair = (b"", b"")
        self._cleanup = 0

    def enter(self, key: bytes, namespace: bytes, cleanup: int) -> Self:
        """For the engine: this window of this key is in hand now, and closes at this time."""
        self._pair = (key, namespace)
        self._cleanup = cleanup
        return self

    def collect(self, key: bytes, namespaces: list[bytes]) -> None:
        """For the engine: windows with these namespaces are about to become one."""
        states = [] if self._cells is None else [self._cells.get((key, each)) for each in namespaces]
        self.merged = tuple(state for state in states if state is not None)

    def forget(self) -> None:
        """For the engine: the window in hand is gone, and with it what the trigger remembered."""
        if self._cells is not None and self._cells.get(self._pair) is not None:
            self._cells.delete(self._pair)

    @property
    def state(self) -> Any:
        """As `TriggerContext.state`."""
        return None if self._cells is None else self._cells.get(self._pair)

    @state.setter
    def state(self, new: Any) -> None:
        if self._cells is None:
            raise Misconfigured(
                "a trigger remembers something and does not say of which type",
                hint="declare it in the class of the trigger: state_type = int",
            )
        if new is not None or self._cells.get(self._pair) is not None:
            self._cells.put(self._pair, new)

    @property
    def watermark(self) -> int:
        """As `TriggerContext.watermark`."""
        return _required(self._event, "event").now

    @property
    def now(self) -> int:
        """As `TriggerContext.now`."""
        return _required(self._processing, "processing").now

    def add_event_timer(self, time: int) -> None:
        """As `TriggerContext.add_event_timer`."""
        key, namespace = self._pair
        _required(self._event, "event").add(key, time, namespace)

    def remove_event_timer(self, time: int) -> None:
        """As `TriggerContext.remove_event_timer`."""
        key, namespace = self._pair
        if not (self._is_event_time and time == self._cleanup):
            _required(self._event, "event").remove(key, time, namespace)

    def add_processing_timer(self, time: int) -> None:
        """As `TriggerContext.add_processing_timer`."""
        key, namespace = self._pair
        _required(self._processing, "processing").add(key, time, namespace)

    def remove_processing_timer(self, time: int) -> None:
        """As `TriggerContext.remove_processing_timer`."""
        key, namespace = self._pair
        if self._is_event_time or time != self._cleanup:
            _required(self._processing, "processing").remove(key, time, namespace)


def _required(timers: Timers | None, domain: str) -> Timers:
    if timers is None:
        raise Misconfigured(
            f"a trigger asks for {domain} time and has said that it does not",
            hint=f"leave out uses_{domain}_time = False in its class",
        )
    return timers
