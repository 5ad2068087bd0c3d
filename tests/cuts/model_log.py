"""Logs of the model: partitions with transactions that are open, committed or aborted, and a stable end."""

from enum import Enum
from typing import Any


class Fate(Enum):
    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"


class Transaction:
    """One of a worker. Its fate is decided at once, but a partition shows it only when its marker is there."""

    __slots__ = ("fate", "is_accepted", "tasks", "unmarked")

    def __init__(self, tasks: frozenset[Any]) -> None:
        self.fate = Fate.OPEN
        # Whose positions it holds, and whether the group has accepted them.
        self.tasks = tasks
        self.is_accepted = False
        self.unmarked: set[Log] = set()

    def decide(self, fate: Fate) -> None:
        self.fate = fate

    @property
    def is_settled(self) -> bool:
        return self.fate is not Fate.OPEN and not self.unmarked


class Log:
    """One partition."""

    def __init__(self) -> None:
        self.entries: list[tuple[Transaction, Any] | None] = []
        self._firsts: dict[Transaction, int] = {}

    def append(self, transaction: Transaction, entry: Any) -> None:
        if transaction not in self._firsts:
            self._firsts[transaction] = len(self.entries)
            transaction.unmarked.add(self)
        self.entries.append((transaction, entry))

    def mark(self, transaction: Transaction) -> None:
        """The marker of a decided transaction arrives."""
        del self._firsts[transaction]
        transaction.unmarked.discard(self)

    @property
    def stable_end(self) -> int:
        return min(self._firsts.values(), default=len(self.entries))

    def at(self, offset: int) -> Any | None:
        """What is read here: nothing if it was aborted or compacted away."""
        found = self.entries[offset]
        return None if found is None or found[0].fate is Fate.ABORTED else found[1]

    def committed(self) -> list[tuple[int, Any]]:
        """All that counts in the end, with offsets."""
        return [
            (offset, found[1])
            for offset, found in enumerate(self.entries)
            if found is not None and found[0].fate is Fate.COMMITTED
        ]

    def compact(self, end: int) -> None:
        """Of the notes before this place, which is stable, keep the last of each key."""
        last: dict[str, int] = {}
        for offset in range(end):
            entry = self.at(offset)
            if entry is not None:
                last[entry.key] = offset
        kept = set(last.values())
        for offset in range(end):
            if offset not in kept:
                self.entries[offset] = None
