"""Sliding windows that look back, as in Kafka Streams: both ends belong to the window.

For records at time t there is a window that ends with them, [t - difference, t], and one that begins behind them,
[t + 1, t + 1 + difference], if it holds any record. So at each time at most one window ends, and whether it exists can
be told from the records alone: one at its end, or one right before its start. Each key keeps its records, sorted, for as
long as a window that holds them or begins behind them may fire.
"""

from bisect import bisect_left, bisect_right
from operator import itemgetter
from typing import Any

from streamkit.model.ids import MAX_TIME
from streamkit.operators.stateless import missing_key
from streamkit.operators.step import MAIN, Fire, Ports, Push, Scope
from streamkit.windows.assigners import Sliding
from streamkit.windows.contents import Element
from streamkit.windows.definition import WindowDefinition
from streamkit.windows.finishing import Process, finishing
from streamkit.windows.late import late_way
from streamkit.windows.triggers import EveryRecordTrigger
from streamkit.windows.window import bounded

_timestamp = itemgetter(0)


class SlidingOperator:
    """One step with sliding windows in one task."""

    def __init__(self, step: WindowDefinition, outputs: Ports, scope: Scope) -> None:
        assert isinstance(step.windows.assigner, Sliding)
        assert step.event_timers is not None
        self._name = step.name
        self._difference = step.windows.assigner.difference
        self._lateness = step.windows.lateness
        self._is_updating = isinstance(step.windows.trigger, EveryRecordTrigger)
        self._elements = scope.cells(step.contents_store)
        process: Process | None = None
        processing = None
        if step.processing_timers is not None:
            processing = scope.timers(step.processing_timers, self._firing())
        self._timers = scope.timers(step.event_timers, self._firing())
        if step.process is not None:
            process = Process(step, step.process, outputs, scope)
            process.ctx.set_clocks(self._timers, processing)
        self._finish = finishing(step, outputs[MAIN], process)
        self._late = late_way(outputs, scope)

    def bound(self) -> Push:
        """As `Step.bind`."""
        take = self.take

        def push(key: Any, value: Any, timestamp: int, step: str = self._name) -> None:
            if key is None:
                raise missing_key(step)
            take(key, value, timestamp)

        return push

    def take(self, key: bytes, value: Any, timestamp: int) -> None:
        """Put a record among those of its key, and fire the windows that cannot wait."""
        elements: list[Element] = self._elements.get(key) or []
        watermark = self._timers.now
        ends = {end for end in self._ends(elements, timestamp) if end + self._lateness > watermark}
        if not ends:
            self._late(key, value, timestamp)
            return
        behind = timestamp + 1 + self._difference
        if not (_has(elements, timestamp) or _has(elements, behind)) and behind + self._lateness > watermark:
            ends.add(behind)  # a window that this record makes, though it is not in it
        elements.insert(bisect_right(elements, timestamp, key=_timestamp), (timestamp, value))
        self._elements.put(key, elements)
        self._set_timers(key, timestamp, watermark)
        for end in sorted(ends):
            if self._is_updating or end <= watermark:
                self._fire(key, elements, end)

    def _ends(self, elements: list[Element], timestamp: int) -> set[int]:
        """Where the windows end that hold a record of this time, its own included."""
        difference = self._difference
        first = bisect_left(elements, timestamp - 1 - difference, key=_timestamp)
        last = bisect_right(elements, timestamp + difference, key=_timestamp)
        ends = {timestamp}
        for at, _ in elements[first:last]:
            ends.add(at if at >= timestamp else at + 1 + difference)
        return ends

    def _set_timers(self, key: bytes, timestamp: int, watermark: int) -> None:
        """For the window that ends with a record, for the one that begins behind it, and for when it may go."""
        behind = timestamp + 1 + self._difference
        for end in () if self._is_updating else (timestamp, behind):
            if end > watermark:
                self._timers.add(key, min(end, MAX_TIME))
        self._timers.add(key, min(behind + self._lateness, MAX_TIME))

    def _fire(self, key: bytes, elements: list[Element], end: int) -> None:
        """Send on the window that ends at this time, if there are records in it."""
        start = end - self._difference
        first = bisect_left(elements, start, key=_timestamp)
        held = elements[first : bisect_right(elements, end, key=_timestamp)]
        if held:
            window = bounded(start, end + 1)
            self._finish(key, window, held, window.max_timestamp)

    def _firing(self) -> Fire:
        def fire(key: bytes, time: int, namespace: bytes, step: str = self._name) -> None:  # noqa: ARG001
            elements: list[Element] | None = self._elements.get(key)
            if elements is None:
                return
            exists = _has(elements, time) or _has(elements, time - 1 - self._difference)
            if exists and not self._is_updating:
                self._fire(key, elements, time)
            gone = bisect_right(elements, time - 1 - self._difference - self._lateness, key=_timestamp)
            if gone:
                self._elements.put(key, elements[gone:] or None)

        return fire


def _has(elements: list[Element], timestamp: int) -> bool:
    """Whether there is a record of exactly this time."""
    at = bisect_left(elements, timestamp, key=_timestamp)
    return at < len(elements) and elements[at][0] == timestamp
