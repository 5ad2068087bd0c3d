"""The short way for the windows that most pipelines use: aligned to the clock and folded, with the default trigger.

For a key and window that are known a record costs a modulo, two lookups, the addition and two writes, all in one
generated function (`operators/fused.py`). Everything else happens when a window is first seen, or when its timer fires.
This is sound because timers fire before the next record comes: a window that has contents is still open.

The state is that of `windows/operator.py`: a pipeline may change from one to the other and keep it.
"""

import operator
from typing import Any

from streamkit.model.ids import MAX_TIME
from streamkit.operators.aggregators import Aggregator, Count, Fold
from streamkit.operators.fused import INDENT, fuse_push
from streamkit.operators.stateless import missing_key
from streamkit.operators.step import MAIN, Fire, Ports, Push, Scope, Statements
from streamkit.windows.assigners import Aligned, Tumbling
from streamkit.windows.contents import OpenContents, Reducing, adding_to_accumulator
from streamkit.windows.definition import WindowDefinition
from streamkit.windows.finishing import sending
from streamkit.windows.late import late_way
from streamkit.windows.triggers import EventTimeTrigger, EveryRecordTrigger, ProcessingTimeTrigger
from streamkit.windows.window import Window, decode_namespace, encode_namespace

# Panes whose windows are remembered before all are forgotten; the current ones are back at once.
REMEMBERED_PANES_MAX = 4_096


def is_plain(step: WindowDefinition) -> bool:
    """Whether a step may go the short way."""
    windows = step.windows
    default = EventTimeTrigger if windows.is_event_time else ProcessingTimeTrigger
    return (
        isinstance(windows.assigner, Aligned)
        and type(windows.trigger) in (default, EveryRecordTrigger)
        and not step.keeps_elements
        and step.process is None
    )


def bind_plain(step: WindowDefinition, outputs: Ports, scope: Scope) -> Push:
    """As `Step.bind`."""
    windows = _PlainWindows(step, outputs, scope)
    return fuse_push((windows.code(),), None)


class Panes(dict[int, tuple[bytes, ...]]):
    """Start of a pane -> the namespaces of its windows by their end, remembered: a known pane costs one lookup."""

    def __init__(self, assigner: Aligned) -> None:
        super().__init__()
        self._windows = assigner.windows

    def __missing__(self, start: int) -> tuple[bytes, ...]:
        if len(self) >= REMEMBERED_PANES_MAX:
            self.clear()
        namespaces = self[start] = tuple(encode_namespace(each) for each in self._windows(start))
        return namespaces


class OnlyNamespaces(dict[int, bytes]):
    """Start of a window -> its namespace, where a pane has one window; remembered as in `Panes`."""

    def __init__(self, panes: Panes) -> None:
        super().__init__()
        self._panes = panes

    def __missing__(self, start: int) -> bytes:
        if len(self) >= REMEMBERED_PANES_MAX:
            self.clear()
        namespace = self[start] = self._panes[start][0]
        return namespace


class _PlainWindows:
    """The windows of one step in one task: all that a record or a timer may ask for."""

    def __init__(self, step: WindowDefinition, outputs: Ports, scope: Scope) -> None:
        windows = step.windows
        timers_store = step.event_timers if windows.is_event_time else step.processing_timers
        assert isinstance(windows.assigner, Aligned)
        assert step.fold is not None
        assert timers_store is not None
        self._name = step.name
        self._assigner = windows.assigner
        self._fold = step.fold
        self._lateness = windows.lateness
        self._is_event_time = windows.is_event_time
        self._is_updating = type(windows.trigger) is EveryRecordTrigger
        self._panes = Panes(self._assigner)
        # Windows that are past their end and wait for late records: these fire again at each.
        self._past: set[bytes] = set()
        self._cells = scope.cells(step.contents_store)
        self._contents = OpenContents(self._cells, scope)
        self._timers = scope.timers(timers_store, self._firing())
        self._add = adding_to_accumulator(self._fold)
        self._send = sending(step, outputs[MAIN])
        self._late = late_way(outputs, scope)

    def code(self) -> Statements:
        """What happens to every record."""
        before, new, names = _addition(self._fold)
        is_new = "known is None or namespace in past" if self._lateness else "known is None"
        window = [
            "pair = key, namespace",
            "known = cache.get(pair)",
            f"if {is_new}:",
            f"{INDENT}enter(key, namespace, value, timestamp)",
            "else:",
            f"{INDENT}cache[pair] = known = {new}",
            f"{INDENT}dirty[pair] = None",
        ]
        if self._is_updating:
            window.append(f"{INDENT}update(key, namespace, known)")
        if not self._is_event_time:
            before = (*before, "timestamp = timers.now")
        pane, offset = self._assigner.pane, self._assigner.offset
        start = (
            f"timestamp - (timestamp - {offset}) % {pane}" if offset else f"timestamp - timestamp % {pane}"
        )
        if isinstance(self._assigner, Tumbling):
            lines = (*before, f"namespace = namespaces[{start}]", *window)
        else:
            lines = (*before, f"for namespace in panes[{start}]:", *(INDENT + line for line in window))
        names |= {
            "namespaces": OnlyNamespaces(self._panes),
            "panes": self._panes,
            "past": self._past,
            "cache": self._cells.cache,
            "dirty": self._cells.dirty,
            "timers": self._timers,
            "enter": self.enter,
            "update": self.update,
        }
        return Statements(self._name, lines, names)

    def enter(self, key: Any, namespace: bytes, value: Any, timestamp: int) -> None:
        """Take a record into a window that is not in the cache, or that is past its end."""
        if key is None:
            raise missing_key(self._name)
        window = decode_namespace(namespace)
        cleanup, now = self._cleanup(window), self._timers.now
        if self._is_event_time and cleanup <= now:
            if self._is_last(namespace, timestamp):
                self._late(key, value, timestamp)
            return
        pair = key, namespace
        is_known = self._cells.cache.get(pair) is not None
        known = self._contents.get(pair)
        new = self._add(known, value, timestamp)
        self._contents.replace(pair, known, new)
        is_past = self._is_event_time and window.max_timestamp <= now
        if is_past:
            self._past.add(namespace)
        if not is_known:  # the timer may be there already, but perhaps another trigger has set no such
            self._set_timer(key, cleanup if is_past else self._end(window), namespace)
        if is_past or self._is_updating:
            self.update(key, namespace, new)

    def update(self, key: bytes, namespace: bytes, contents: Any) -> None:
        """Send on what a window amounts to now."""
        if contents is not None:
            window = decode_namespace(namespace)
            self._send(key, window, self._fold.result(contents), window.max_timestamp)

    def _firing(self) -> Fire:
        def fire(key: bytes, time: int, namespace: bytes, step: str = self._name) -> None:  # noqa: ARG001
            pair = key, namespace
            contents = self._contents.get(pair)
            if contents is None:
                return
            window = decode_namespace(namespace)
            if time == self._end(window) and not self._is_updating:
                self.update(key, namespace, contents)
            cleanup = self._cleanup(window)
            if time >= cleanup:
                self._past.discard(namespace)
                self._contents.replace(pair, contents, None)
            else:
                self._past.add(namespace)
                self._set_timer(key, cleanup, namespace)

        return fire

    def _set_timer(self, key: bytes, time: int, namespace: bytes) -> None:
        """Have a timer of a window. Its cleanup needs none if it comes with the end of all input, behind its firing."""
        if time < MAX_TIME or time == self._end(decode_namespace(namespace)):
            self._timers.add(key, time, namespace)

    def _end(self, window: Window) -> int:
        """When the window fires. A clock on the wall must have left its last millisecond behind."""
        return window.max_timestamp if self._is_event_time else window.end

    def _cleanup(self, window: Window) -> int:
        """From this time on the window is closed."""
        return min(self._end(window) + self._lateness, MAX_TIME)

    def _is_last(self, namespace: bytes, timestamp: int) -> bool:
        """Whether no window of this record ends later, so that one that is late for it is late for all."""
        start = timestamp - (timestamp - self._assigner.offset) % self._assigner.pane
        return self._panes[start][-1] == namespace


def _addition(fold: Aggregator[Any, Any, Any]) -> tuple[tuple[str, ...], str, dict[str, Any]]:
    """The accumulator `known` with `value` in it: what to do once per record, the expression, what both mention."""
    if type(fold) is Count:
        return (), "known + 1", {}
    if type(fold) is Fold:
        each = "known + number" if fold.combine is operator.add else "combine(known, number)"
        return ("number = fn(value)",), each, {"fn": fold.fn, "combine": fold.combine}
    if type(fold) is Reducing:
        return (), "fn(known, value)", {"fn": fold.fn}
    return (), "add(known, value)", {"add": fold.add}
