"""Sessions: windows that grow together. Two that touch become one, and what was in both is in it.

The contents do not move when a session grows: they stay under the namespace of the window it began as, the first of
those that became one. Beside them each key has the list of its open sessions.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

from streamkit.operators.step import Push, Scope
from streamkit.windows.assigners import Session
from streamkit.windows.contents import Merge, merge_of
from streamkit.windows.definition import WindowDefinition
from streamkit.windows.operator import WindowOperator
from streamkit.windows.window import Window, encode_namespace


class OpenSession(NamedTuple):
    """A session and the window under whose namespace its contents are."""

    window: Window
    home: Window

    @property
    def place(self) -> bytes:
        """Where the contents are."""
        return encode_namespace(self.home)


def join(sessions: Iterable[OpenSession], new: Window) -> tuple[OpenSession, list[OpenSession]]:
    """The session that `new` becomes part of, and those that it swallows for that, by their start.

    Sessions of a key never touch one another, so nothing else can touch what comes out.
    """
    absorbed = sorted(
        each for each in sessions if each.window.start <= new.end and new.start <= each.window.end
    )
    if not absorbed:
        return OpenSession(new, new), []
    windows = [new, *(each.window for each in absorbed)]
    joined = Window(min(each.start for each in windows), max(each.end for each in windows))
    return OpenSession(joined, absorbed[0].home), absorbed


class SessionOperator(WindowOperator):
    """One step with sessions in one task."""

    def __init__(self, step: WindowDefinition, following: Push, scope: Scope) -> None:
        super().__init__(step, following, scope)
        assert step.sessions_store is not None
        self._sessions = scope.value_cells(step.sessions_store)
        self._merge = _merging(step)

    def take(self, key: bytes, value: Any, timestamp: int, time: int) -> None:
        """As `WindowOperator.take`: a record begins a session, or makes one of those that it touches."""
        assigner = self.step.windows.assigner
        assert isinstance(assigner, Session)
        sessions = self._open(key)
        session, absorbed = join(sessions, assigner.window(value, time))
        if self.is_late(session.window):
            self.late(key, value, timestamp)
            return
        if [each.window for each in absorbed] != [session.window]:
            if absorbed:
                self._grow(key, session, absorbed)
            self._keep(key, [session, *(each for each in sessions if each not in absorbed)])
            self.expect_cleanup(key, session.window, encode_namespace(session.window))
        self.put(key, session.window, session.place, value, timestamp)

    def place_of(self, key: bytes, window: Window, namespace: bytes) -> bytes | None:  # noqa: ARG002
        """As `WindowOperator.place_of`."""
        return next((each.place for each in self._open(key) if each.window == window), None)

    def close(self, key: bytes, window: Window, place: bytes, time: int) -> None:
        """As `WindowOperator.close`."""
        super().close(key, window, place, time)
        self._keep(key, [each for each in self._open(key) if each.window != window])

    def _grow(self, key: bytes, session: OpenSession, absorbed: list[OpenSession]) -> None:
        """Make one session of several: its trigger first, while it can see what the others remember."""
        namespaces = [encode_namespace(each.window) for each in absorbed]
        self.ctx.collect(key, namespaces)
        window = session.window
        self.trigger.on_merge(window, self.ctx.enter(key, encode_namespace(window), self.cleanup(window)))
        for each, namespace in zip(absorbed, namespaces, strict=True):
            self.clear_trigger(key, each.window)
            self.forget_cleanup(key, each.window, namespace)
        merged = None
        for each in absorbed:
            contents = self.contents.get((key, each.place))
            if contents is None:
                continue
            merged = contents if merged is None else self._merge(merged, contents)
            if each.home != session.home:
                self.contents.delete((key, each.place))
        if len(absorbed) > 1 and merged is not None:
            self.contents.put((key, session.place), merged)

    def _open(self, key: bytes) -> list[OpenSession]:
        stored = self._sessions.get(key) or ()
        return [
            OpenSession(Window(start, end), Window(home_start, home_end))
            for start, end, home_start, home_end in stored
        ]

    def _keep(self, key: bytes, sessions: list[OpenSession]) -> None:
        self._sessions.put(key, [(*each.window, *each.home) for each in sorted(sessions)] or None)


def _merging(step: WindowDefinition) -> Merge:
    merge = None if step.fold is None or step.keeps_elements else merge_of(step.fold)
    return merge or _joined_elements


def _joined_elements(elements: list[Any], more: list[Any]) -> list[Any]:
    return [*elements, *more]
