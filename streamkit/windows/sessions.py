"""Sessions: windows that grow together. Two that overlap become one, and what was in both is in it.

Two that only touch stay two: a record at the very end of a session comes one gap after the last, and may come when the
session is closed already. Joining the two would make the answer depend on which came first.

Contents, state and timers do not move when a session grows: they stay under the namespace of the window it began as,
the first of those that became one. Beside them each key has the list of its open sessions.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

from streamkit.operators.step import Ports, Scope
from streamkit.windows.assigners import Session
from streamkit.windows.contents import Merge, merge_of
from streamkit.windows.definition import WindowDefinition
from streamkit.windows.operator import OpenPane, WindowOperator
from streamkit.windows.window import Window, decode_namespace, encode_namespace


class OpenSession(NamedTuple):
    """A session, and the window that it began as."""

    window: Window
    home: Window


def join(sessions: Iterable[OpenSession], new: Window) -> tuple[OpenSession, list[OpenSession]]:
    """The session that `new` becomes part of, and those that it swallows for that, by their start.

    Sessions of a key never overlap one another, so nothing else can overlap what comes out.
    """
    absorbed = sorted(
        each for each in sessions if each.window.start < new.end and new.start < each.window.end
    )
    if not absorbed:
        return OpenSession(new, new), []
    windows = [new, *(each.window for each in absorbed)]
    joined = Window(min(each.start for each in windows), max(each.end for each in windows))
    return OpenSession(joined, absorbed[0].home), absorbed


class SessionOperator(WindowOperator):
    """One step with sessions in one task."""

    def __init__(self, step: WindowDefinition, outputs: Ports, scope: Scope) -> None:
        super().__init__(step, outputs, scope)
        assert isinstance(step.windows.assigner, Session)
        assert step.sessions_store is not None
        self.assigner = step.windows.assigner
        # Start and end of each open session of a key, and those of the window that it began as.
        self.stored = scope.cells(step.sessions_store)
        self._merge = _merging(step)

    def take(self, key: bytes, value: Any, timestamp: int, time: int) -> None:
        """As `WindowOperator.take`: a record begins a session, or makes one of those that it overlaps."""
        sessions = self.sessions(key)
        session, absorbed = join(sessions, self.assigner.window(value, time))
        slot = self.slot_of(session)
        if self.is_closed(slot):
            self.late(key, value, timestamp)
            return
        if [each.window for each in absorbed] != [session.window]:
            self.keep(key, [session, *(each for each in sessions if each not in absorbed)])
            if absorbed:
                self.grow(key, slot, [self.slot_of(each) for each in absorbed])
            self.expect_cleanup(key, slot)
        self.put(key, slot, value, timestamp)

    def find(self, key: bytes, namespace: bytes) -> OpenPane | None:
        """As `WindowOperator.find`."""
        home = decode_namespace(namespace)
        return next((self.slot_of(each) for each in self.sessions(key) if each.home == home), None)

    def close(self, key: bytes, slot: OpenPane, time: int) -> None:
        """As `WindowOperator.close`."""
        super().close(key, slot, time)
        self.keep(key, [each for each in self.sessions(key) if each.window != slot.window])

    def grow(self, key: bytes, slot: OpenPane, absorbed: list[OpenPane]) -> None:
        """Make one session of several: first they are forgotten, then the trigger sees what it had of them."""
        self.ctx.collect(key, [each.namespace for each in absorbed])
        for each in absorbed:
            self.clear_trigger(key, each)
            if self.timers is not None:
                self.timers.remove(key, each.cleanup, each.namespace)
        self.merge_contents(key, absorbed)
        self.trigger.on_merge(slot.window, self.ctx.enter(key, slot.namespace, slot.cleanup))

    def merge_contents(self, key: bytes, absorbed: list[OpenPane]) -> None:
        """Bring the contents of several sessions to the first of them."""
        if len(absorbed) < 2:
            return
        first, *others = absorbed
        merged = known = self.contents.get((key, first.namespace))
        for each in others:
            contents = self.contents.get((key, each.namespace))
            if contents is not None:
                merged = contents if merged is None else self._merge(merged, contents)
                self.contents.replace((key, each.namespace), contents, None)
        if merged is not known:
            self.contents.replace((key, first.namespace), known, merged)

    def expect_more(self, key: bytes, slot: OpenPane, time: int) -> None:
        """As `WindowOperator.expect_more`. Its end may have moved since the timer was set."""
        super().expect_more(key, slot, time)
        if self.timers is not None and time < slot.window.max_timestamp:
            self.timers.add(key, slot.window.max_timestamp, slot.namespace)

    def slot_of(self, session: OpenSession) -> OpenPane:
        """A session with all that belongs to it."""
        return self.slot(session.window, encode_namespace(session.home))

    def sessions(self, key: bytes) -> list[OpenSession]:
        """The open sessions of a key."""
        stored = self.stored.get(key) or ()
        return [
            OpenSession(Window(start, end), Window(home_start, home_end))
            for start, end, home_start, home_end in stored
        ]

    def keep(self, key: bytes, sessions: list[OpenSession]) -> None:
        """Change the open sessions of a key."""
        self.stored.put(key, [(*each.window, *each.home) for each in sorted(sessions)] or None)


def _merging(step: WindowDefinition) -> Merge:
    merge = None if step.fold is None or step.keeps_elements else merge_of(step.fold)
    return merge or _joined_elements


def _joined_elements(elements: list[Any], more: list[Any]) -> list[Any]:
    return [*elements, *more]
