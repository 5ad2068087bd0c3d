"""The short way for the windows that most pipelines use: aligned to the clock, folded, sent on when they close.

For a key and window that are known a record costs a modulo, two lookups, the addition and two writes, all in one
generated function (`operators/fused.py`). Everything else happens when a window is first seen, or when its timer fires.
This is sound because timers fire before the next record comes: a window that has contents is still open.

The state is that of `windows/operator.py`: a pipeline may change from one to the other and keep it.
"""

import operator
from typing import Any

from streamkit.model.ids import MAX_TIME
from streamkit.operators.aggregators import Aggregator, Count, Fold
from streamkit.operators.fused import INDENT, Code, fuse_push
from streamkit.operators.stateless import missing_key
from streamkit.operators.step import Fire, Push, Scope
from streamkit.windows.assigners import Aligned, Tumbling
from streamkit.windows.contents import Reducing, adding_to_accumulator
from streamkit.windows.definition import WindowDefinition
from streamkit.windows.finishing import sending
from streamkit.windows.late import late_way
from streamkit.windows.triggers import EventTimeTrigger
from streamkit.windows.window import Window, decode_namespace, encode_namespace

# Panes whose windows are remembered before all are forgotten; the current ones are back at once.
REMEMBERED_PANES_MAX = 4_096


def is_plain(step: WindowDefinition) -> bool:
    """Whether a step may go the short way."""
    windows = step.windows
    return (
        isinstance(windows.assigner, Aligned)
        and windows.is_event_time
        and type(windows.trigger) is EventTimeTrigger
        and not step.keeps_elements
        and step.process is None
    )


def bind_plain(step: WindowDefinition, following: Push, scope: Scope) -> Push:
    """As `Step.bind`."""
    windows = _PlainWindows(step, following, scope)
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

    def __init__(self, step: WindowDefinition, following: Push, scope: Scope) -> None:
        assert isinstance(step.windows.assigner, Aligned)
        assert step.fold is not None
        assert step.event_timers is not None
        self._step = step
        self._assigner = step.windows.assigner
        self._fold = step.fold
        self._lateness = step.windows.lateness
        self._panes = Panes(self._assigner)
        # Windows that are past their end and wait for late records: these fire again at each.
        self._past: set[bytes] = set()
        self._cells = scope.window_cells(step.contents_store)
        self._timers = scope.timers(step.event_timers, self._firing())
        self._add = adding_to_accumulator(self._fold)
        self._send = sending(step, following)
        self._late = late_way(following, scope, is_sent=step.windows.sends_late)

    def code(self) -> Code:
        """What happens to every record."""
        is_new = "known is None or namespace in past" if self._lateness else "known is None"
        before, each, names = _addition(self._fold)
        window = (
            "pair = key, namespace",
            "known = cache.get(pair)",
            f"if {is_new}:",
            f"{INDENT}enter(key, namespace, value, timestamp)",
            "else:",
            f"{INDENT}cache[pair] = {each}",
            f"{INDENT}dirty[pair] = None",
        )
        pane, offset = self._assigner.pane, self._assigner.offset
        start = (
            f"timestamp - (timestamp - {offset}) % {pane}" if offset else f"timestamp - timestamp % {pane}"
        )
        if isinstance(self._assigner, Tumbling):
            lines = (*before, f"namespace = namespaces[{start}]", *window)
        else:
            indented = (INDENT + line for line in window)
            lines = (*before, f"for namespace in panes[{start}]:", *indented)
        names |= {
            "namespaces": OnlyNamespaces(self._panes),
            "panes": self._panes,
            "past": self._past,
            "cache": self._cells.cache,
            "dirty": self._cells.dirty,
            "enter": self.enter,
        }
        return Code(self._step.name, lines, names)

    def enter(self, key: Any, namespace: bytes, value: Any, timestamp: int) -> None:
        """Take a record into a window that is not in the cache, or that is past its end."""
        if key is None:
            raise missing_key(self._step.name)
        window = decode_namespace(namespace)
        watermark = self._timers.now
        cleanup = self._cleanup(window)
        if cleanup <= watermark:
            if self._is_last(namespace, timestamp):
                self._late(key, value, timestamp)
            return
        pair = key, namespace
        known = self._cells.get(pair)
        new = self._add(known, value, timestamp)
        if window.max_timestamp > watermark:
            self._cells.put(pair, new)
            if known is None:
                self._timers.add(key, window.max_timestamp, namespace)
            return
        # Late, but allowed.
        self._cells.put(pair, new)
        self._past.add(namespace)
        if known is None and cleanup < MAX_TIME:
            self._timers.add(key, cleanup, namespace)
        if new is not None:
            self._send(key, window, self._fold.result(new), window.max_timestamp)

    def _firing(self) -> Fire:
        def fire(key: bytes, time: int, namespace: bytes, step: str = self._step.name) -> None:  # noqa: ARG001
            pair = key, namespace
            contents = self._cells.get(pair)
            if contents is None:
                return
            window = decode_namespace(namespace)
            # Without lateness every timer is the end of its window, even one that was set when there was some.
            if time == window.max_timestamp or not self._lateness:
                self._send(key, window, self._fold.result(contents), window.max_timestamp)
            cleanup = self._cleanup(window)
            if time >= cleanup:
                self._past.discard(namespace)
                self._cells.delete(pair)
            else:
                self._past.add(namespace)
                if cleanup < MAX_TIME:
                    self._timers.add(key, cleanup, namespace)

        return fire

    def _cleanup(self, window: Window) -> int:
        """From this watermark on the window is closed."""
        return min(window.max_timestamp + self._lateness, MAX_TIME)

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
