"""The cluster in memory: topics, transactions and groups behind one clock.

Plain code without an event loop: whoever calls brings the time. `MemoryLog` does it with the loop's clock, so the
same broker runs in real and in virtual time.
"""

from collections.abc import Callable

from streamkit.testing.memory.bell import Bell
from streamkit.testing.memory.groups import Groups
from streamkit.testing.memory.topics import Topics
from streamkit.testing.memory.transactions import Transactions


class MemoryBroker:
    """What survives every client: give the same one to each `MemoryLog`.

    `marker_delay_s` is asked for every marker of an ended transaction; without it they are written at once. `clock_ms` is
    the clock on the broker's wall; without it no timestamp is refused.
    """

    __slots__ = ("groups", "moved", "now", "topics", "transactions")

    def __init__(
        self,
        *,
        marker_delay_s: Callable[[], float] | None = None,
        clock_ms: Callable[[], int] | None = None,
    ) -> None:
        self.now = 0.0
        self.moved = Bell()
        self.topics = Topics()
        self.groups = Groups()
        self.transactions = Transactions(self.topics, self.groups, self.moved)
        self.transactions.marker_delay_s = marker_delay_s
        self.transactions.clock_ms = clock_ms

    @property
    def deadline(self) -> float:
        """Nothing happens by itself before this time."""
        return min(self.transactions.deadline, self.groups.deadline())

    def tick(self, now: float) -> None:
        """Let time pass: sessions, rounds and transactions that are overdue end."""
        self.now = now
        self.transactions.expire(now)
        self.groups.expire(now)
