"""State in memory: for tests, for simulations, and for pipelines whose state is small and restored quickly.

`MemoryStores` stands for the disk of a host: it outlives the stores that it opens. A simulation may `crash` it, and
then each store keeps some prefix of what was applied since its last flush, as a real one does.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator
from typing import NamedTuple

from streamkit.errors import Bug, StateInUse
from streamkit.state.store import StateStore, Writes

# (name of the store, number of applies since its last flush) -> how many of these, the oldest first, survive.
Survives = Callable[[str, int], int]


class Undo(NamedTuple):
    """What an apply replaced."""

    entries: dict[bytes, bytes | None]
    changelog_offset: int


class Content:
    """What one store holds, in key order when asked."""

    def __init__(self) -> None:
        self.entries: dict[bytes, bytes] = {}
        self.changelog_offset = 0
        self.undo: list[Undo] = []
        # Sorting is put off until somebody scans: `_order` and `_added` together hold the keys of `entries` and of
        # `_gone`, each once.
        self._order: list[bytes] = []
        self._added: list[bytes] = []
        self._gone: set[bytes] = set()

    def apply(self, writes: Writes, changelog_offset: int) -> None:
        """Write all of it."""
        entries, gone = self.entries, self._gone
        for key, value in writes.items():
            if value is None:
                if entries.pop(key, None) is not None:
                    gone.add(key)
                continue
            if key not in entries:
                if key in gone:
                    gone.discard(key)
                else:
                    self._added.append(key)
            entries[key] = value
        self.changelog_offset = changelog_offset

    def remember(self, writes: Writes) -> None:
        """Keep what these writes will replace, for a crash."""
        self.undo.append(Undo({key: self.entries.get(key) for key in writes}, self.changelog_offset))

    def crash(self, survived: int) -> None:
        """Keep only the first `survived` of the applies that are not flushed."""
        while len(self.undo) > survived:
            self.apply(*self.undo.pop())
        self.undo.clear()

    def in_order(self) -> list[bytes]:
        """The keys, sorted."""
        if len(self._gone) * 2 > len(self.entries):
            self._order = sorted(self.entries)
            self._added, self._gone = [], set()
        elif self._added:
            # A fresh list, because a scan may still walk the old one; two sorted runs are merged in linear time.
            self._order = self._order + sorted(self._added)
            self._order.sort()
            self._added = []
        return self._order


class MemoryStore:
    """A StateStore in a dict."""

    def __init__(self, content: Content, *, is_crashable: bool) -> None:
        self._content: Content | None = content
        self._is_crashable = is_crashable

    @property
    def changelog_offset(self) -> int:
        """The changelog is reflected up to here (exclusive)."""
        return self._open().changelog_offset

    def get(self, key: bytes) -> bytes | None:
        """The value of this key, or None."""
        return self._open().entries.get(key)

    def scan(self, prefix: bytes, start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """All entries from `start` on whose key begins with `prefix`, in key order."""
        content = self._open()
        keys = content.in_order()
        found = []
        for at in range(bisect_left(keys, max(prefix, start)), len(keys)):
            key = keys[at]
            if not key.startswith(prefix):
                break
            value = content.entries.get(key)
            if value is not None:
                found.append((key, value))
        return iter(found)

    def apply(self, writes: Writes, changelog_offset: int) -> None:
        """Write all of it and the offset."""
        content = self._open()
        if self._is_crashable:
            content.remember(writes)
        content.apply(writes, changelog_offset)

    def flush(self) -> None:
        """What was applied survives a crash from now on."""
        self._open().undo.clear()

    def close(self) -> None:
        """Keep what was applied; this store cannot be used again."""
        if self._content is not None:
            self._content.undo.clear()
            self._content = None

    def crash(self, survived: int | None) -> None:
        """The process died: keep only that many of the applies since the last flush (None: all of them)."""
        if self._content is not None and survived is not None:
            self._content.crash(survived)
        self.close()

    @property
    def is_open(self) -> bool:
        """Whether somebody holds this store."""
        return self._content is not None

    @property
    def unflushed(self) -> int:
        """How many applies a crash may take away."""
        return len(self._open().undo)

    def _open(self) -> Content:
        if self._content is None:
            raise Bug("a closed state store was used")
        return self._content


class MemoryStores:
    """The disk of a host that is no disk.

    Without `survives` everything that was applied survives a crash, and no undo is kept.
    """

    def __init__(self, survives: Survives | None = None) -> None:
        self._survives = survives
        self._contents: dict[str, Content] = {}
        self._holders: dict[str, MemoryStore] = {}
        self._guests: list[MemoryStore] = []

    def open(self, name: str, *, beside: bool = True) -> StateStore:
        """The store of the task `name`; an empty one of its own, soon forgotten, while somebody else holds it.

        Raises:
            StateInUse: somebody else holds it, and `beside` is false.
        """
        holder = self._holders.get(name)
        if holder is not None and holder.is_open:
            if not beside:
                raise StateInUse("the state store is held by another task", where=name)
            guest = MemoryStore(Content(), is_crashable=False)
            self._guests = [*(each for each in self._guests if each.is_open), guest]
            return guest
        content = self._contents.setdefault(name, Content())
        store = self._holders[name] = MemoryStore(content, is_crashable=self._survives is not None)
        return store

    def discard(self, name: str) -> None:
        """Remove the stored state of a closed task; one that is held by somebody stays."""
        holder = self._holders.get(name)
        if holder is None or not holder.is_open:
            self._contents.pop(name, None)

    def close(self) -> None:
        """Nothing to release."""

    def crash(self) -> None:
        """The process died: its stores are lost, and of each some prefix of the applies is left."""
        for guest in self._guests:
            guest.crash(None)
        for name, store in self._holders.items():
            if store.is_open:
                survived = None if self._survives is None else self._survives(name, store.unflushed)
                store.crash(survived)
        self._holders.clear()
        self._guests.clear()
