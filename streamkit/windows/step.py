"""WindowStep: a window operator at its place in a chain. What it was told decides which machine runs it."""

from streamkit.operators.step import MAIN, Ports, Push, Scope
from streamkit.windows.assigners import Session, Sliding
from streamkit.windows.definition import WindowDefinition
from streamkit.windows.look_back import SlidingOperator
from streamkit.windows.operator import WindowOperator
from streamkit.windows.plain import bind_plain, is_plain
from streamkit.windows.plain_sessions import PlainSessions, is_plain_session
from streamkit.windows.sessions import SessionOperator


class WindowStep(WindowDefinition, frozen=True, kw_only=True):
    """Put the records of a key together by time or by number, and send on what each window amounts to."""

    def bind(self, outputs: Ports, scope: Scope) -> Ports:
        """As `Step.bind`."""
        return {MAIN: self._bind(outputs, scope)}

    def _bind(self, outputs: Ports, scope: Scope) -> Push:
        if is_plain(self):
            return bind_plain(self, outputs, scope)
        match self.windows.assigner:
            case Session() if is_plain_session(self):
                return PlainSessions(self, outputs, scope).bound()
            case Session():
                return SessionOperator(self, outputs, scope).bound()
            case Sliding():
                return SlidingOperator(self, outputs, scope).bound()
            case _:
                return WindowOperator(self, outputs, scope).bound()
