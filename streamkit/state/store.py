"""StateStore: bytes by key for one task, written atomically together with the changelog offset.

A store holds exactly what its changelog says: the key and value of a changelog record are the key and value of a
store entry, commit records included. So restoring is copying, and a store can be compared with its changelog.
"""

from collections.abc import Iterator, Mapping
from typing import Protocol

# key -> value; None deletes. Keys are made by `state/keys.py` and begin with the two bytes of their key group.
Writes = Mapping[bytes, bytes | None]


class StateStore(Protocol):
    """What one task has committed. Never holds anything that is not committed in the changelog.

    After a crash a store is the result of some prefix of the `apply` calls, each wholly in or wholly out, and
    `changelog_offset` belongs to exactly that prefix.
    """

    @property
    def changelog_offset(self) -> int:
        """The changelog is reflected in this store up to here (exclusive); 0 for a new store."""
        ...

    def get(self, key: bytes) -> bytes | None:
        """The value of this key, or None."""
        ...

    def scan(self, prefix: bytes, start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """All entries from `start` on whose key begins with `prefix`, in key order; a snapshot of this moment."""
        ...

    def apply(self, writes: Writes, changelog_offset: int) -> None:
        """Write all of it and the offset, or nothing."""
        ...

    def flush(self) -> None:
        """Make what was applied survive a crash; may take a while (run it off the event loop)."""
        ...

    def close(self) -> None:
        """Release files and locks; what was applied survives. A closed store raises on use."""
        ...


class StateStores(Protocol):
    """Opens the stores of a process; all share one memory budget."""

    def open(self, name: str, *, beside: bool = True) -> StateStore:
        """The store of the task `name` ("stage-partition"), as the last owner on this host left it.

        A folder that is damaged is set aside and a fresh one is used. A folder that another live process holds (a
        stopped predecessor, say) is left alone and, if `beside`, a fresh one beside it is used. Both are logged; the
        changelog has everything.

        Raises:
            Misconfigured: the folder cannot be written to.
            StateInUse: another live process holds the folder, and `beside` is false.
        """
        ...

    def discard(self, name: str) -> None:
        """Remove the stored state of a closed task, so that the next `open` begins empty."""
        ...

    def close(self) -> None:
        """Release the shared budget; every store must be closed already."""
        ...
