"""Snapshots in a folder, on a disk of this host or on one that several hosts share.

A content is written beside the others under a temporary name, made durable, and then given its name: whoever looks
sees all of it or nothing. Only the owner may read, for state is data of the pipeline.
"""

import errno
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

from streamkit.errors import Misconfigured, Retry, StreamkitError
from streamkit.snapshots.store import Entry, already_stored, not_stored, require_name

# Where contents are written before they have a name; no name begins with a dot.
INCOMING = ".incoming"
# Nobody writes a content for this long: what is older was left by a crash.
INCOMING_S_MAX = 24 * 3600.0
# A folder that becomes empty is removed, perhaps just before somebody puts something there.
_PLACE_TRIES = 5

_FOR_NOW = {errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.EIO, errno.ESTALE, errno.ETIMEDOUT}


class FolderSnapshots:
    """A SnapshotStore in a folder."""

    def __init__(self, root: Path) -> None:
        """The folder is made when the first content is stored."""
        self._root = root

    def put(self, name: str, content: bytes) -> None:
        """As `SnapshotStore.put`."""
        path = self._path(name)
        with self._explained(path):
            self._store(path, content, os.replace)

    def create(self, name: str, content: bytes) -> None:
        """As `SnapshotStore.create`."""
        path = self._path(name)
        with self._explained(path):
            try:
                # A link is the one way to give a name that fails if the name is taken.
                self._store(path, content, os.link)
            except FileExistsError as error:
                raise already_stored(name, str(self._root)) from error

    def get(self, name: str) -> bytes:
        """As `SnapshotStore.get`."""
        path = self._path(name)
        with self._explained(path):
            try:
                return path.read_bytes()
            except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
                raise not_stored(name, str(self._root)) from error

    def list(self, folder: str) -> list[Entry]:
        """As `SnapshotStore.list`."""
        top = self._path(folder) if folder else self._root
        with self._explained(top):
            return sorted(self._entries(top))

    def delete(self, name: str) -> None:
        """As `SnapshotStore.delete`."""
        path = self._path(name)
        with self._explained(path):
            with suppress(FileNotFoundError, NotADirectoryError):
                path.unlink()
                _sync_folder(path.parent)
            self._remove_if_empty(path.parent)

    def _path(self, name: str) -> Path:
        return self._root.joinpath(*require_name(name).split("/"))

    def _store(self, path: Path, content: bytes, give_name: Callable[[Path, Path], None]) -> None:
        incoming = self._root / INCOMING
        self._make(incoming)
        self._sweep(incoming)
        temporary = incoming / uuid4().hex
        try:
            with open(temporary, "xb", opener=_private) as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            self._place(temporary, path, give_name)
        finally:
            temporary.unlink(missing_ok=True)
        _sync_folder(path.parent)

    def _place(self, temporary: Path, path: Path, give_name: Callable[[Path, Path], None]) -> None:
        for _ in range(_PLACE_TRIES - 1):
            self._make(path.parent)
            with suppress(FileNotFoundError):
                give_name(temporary, path)
                return
        self._make(path.parent)
        give_name(temporary, path)

    def _make(self, folder: Path) -> None:
        """Make a folder durably, and those above it; all of them for the owner only."""
        if folder.is_dir():
            return
        self._make(folder.parent)
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700)
            _sync_folder(folder.parent)

    def _sweep(self, incoming: Path) -> None:
        """Remove what a crash has left without a name."""
        oldest = time.time() - INCOMING_S_MAX
        for each in incoming.iterdir():
            with suppress(FileNotFoundError):
                if each.stat().st_mtime < oldest:
                    each.unlink()

    def _entries(self, top: Path) -> Iterator[Entry]:
        for folder, folders, files in os.walk(top):
            folders[:] = [each for each in folders if not each.startswith(".")]
            for file in files:
                path = Path(folder, file)
                with suppress(FileNotFoundError):  # deleted meanwhile
                    yield Entry(path.relative_to(self._root).as_posix(), path.stat().st_size)

    def _remove_if_empty(self, folder: Path) -> None:
        while folder != self._root:
            try:
                folder.rmdir()
            except FileNotFoundError:
                pass
            except OSError:
                return  # there is something in it
            folder = folder.parent

    @contextmanager
    def _explained(self, path: Path) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise _explain(error, path) from error


def _explain(error: OSError, path: Path) -> StreamkitError:
    kind = Retry if error.errno in _FOR_NOW else Misconfigured
    return kind(
        "the snapshot store cannot be used",
        where=str(path),
        detail=str(error),
        hint="see `df -h` and the owner of the folder: the worker needs one that it may write to",
    )


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
