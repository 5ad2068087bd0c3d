"""WindowStep: a window operator at its place in a chain. What it was told decides which machine runs it."""

from streamkit.operators.step import Push, Scope
from streamkit.windows.assigners import Session, Sliding
from streamkit.windows.definition import WindowDefinition
from streamkit.windows.look_back import SlidingOperator
from streamkit.windows.operator import WindowOperator
from streamkit.windows.plain import bind_plain, is_plain
from streamkit.windows.plain_sessions import PlainSessions, is_plain_session
from streamkit.windows.sessions import SessionOperator


class WindowStep(WindowDefinition, frozen=True, kw_only=True):
    """Put the records of a key together by time or by number, and send on what each window amounts to."""

    def bind(self, following: Push, scope: Scope) -> Push:
        """As `Step.bind`."""
        if is_plain(self):
            return bind_plain(self, following, scope)
        match self.windows.assigner:
            case Session() if is_plain_session(self):
                return PlainSessions(self, following, scope).bound()
            case Session():
                return SessionOperator(self, following, scope).bound()
            case Sliding():
                return SlidingOperator(self, following, scope).bound()
            case _:
                return WindowOperator(self, following, scope).bound()
