"""SnapshotStore: where snapshots are kept, by name: a folder, an object store, the memory of a test.

Names are slash-separated words, made in `snapshots/layout.py`. A content is at most some 64 MB and is handed over as a
whole. Nothing here waits for anything but the store itself: call it off the event loop.
"""

import re
from typing import NamedTuple, Protocol

from streamkit.errors import Misconfigured

# What object stores, file systems and URLs all take as it is; none begins with a dot, so "." and ".." are none.
_WORD = re.compile(r"[A-Za-z0-9_=-][A-Za-z0-9_=.-]{0,249}")


class NotStored(Misconfigured):
    """The snapshot store has nothing of that name."""


class AlreadyStored(Misconfigured):
    """The snapshot store has something of that name, which may not be replaced."""


class Entry(NamedTuple):
    """One content that is stored."""

    name: str
    bytes: int


class SnapshotStore(Protocol):
    """Contents by name. What was put or created is durable when the call returns, and is never seen in part.

    All calls raise `Retry` if the store is away or full for now, `Misconfigured` if a person must let us in, and if
    a name is none.
    """

    def put(self, name: str, content: bytes) -> None:
        """Store this under the name, in the place of what was there."""
        ...

    def create(self, name: str, content: bytes) -> None:
        """Store this under a name that is free; of several who try at once, one succeeds.

        Raises:
            AlreadyStored: the name is taken, and what is there stays.
        """
        ...

    def get(self, name: str) -> bytes:
        """What is stored under the name.

        Raises:
            NotStored: nothing is.
        """
        ...

    def list(self, folder: str) -> list[Entry]:
        """All that is stored below this folder ("" for everything), however deep, sorted by name."""
        ...

    def delete(self, name: str) -> None:
        """Have nothing under the name, whether or not there was something."""
        ...


def is_name(text: str) -> bool:
    """Whether a snapshot store takes this as a name."""
    return all(_WORD.fullmatch(word) for word in text.split("/"))


def require_name(name: str) -> str:
    """The name itself, if it is one; it never leads out of the store.

    Raises:
        Misconfigured: it is none.
    """
    if not is_name(name):
        raise Misconfigured(
            f"a snapshot store takes no name like {name!r}",
            detail="a name is made of words with slashes between them, of letters, digits and any of _ = - .",
            hint="ids of savepoints are listed with the savepoints; another path in a manifest means that it is not ours",
        )
    return name


def not_stored(name: str, where: str) -> NotStored:
    """The error of `get`."""
    return NotStored(
        f'the snapshot store has no "{name}"',
        where=where,
        hint="was it deleted, or is this another folder than the one that it was written to?",
    )


def already_stored(name: str, where: str) -> AlreadyStored:
    """The error of `create`."""
    return AlreadyStored(
        f'the snapshot store has a "{name}" already',
        where=where,
        detail="what was stored stays as it is",
        hint="choose another id, or delete the old one first",
    )
