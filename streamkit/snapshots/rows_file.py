"""Files of rows in a snapshot store: written once, and trusted only after all that is known of them was compared.

`rows_sha256` is made of the rows alone: of each, in the order of the keys, four bytes with the length of the key, the
key, four bytes with the length of the value, the value. So it is the same whichever store the rows came from and
however they were packed.
"""

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import rmtree
from uuid import uuid4

import msgspec

from streamkit.errors import Misconfigured, SnapshotDamaged, StateCorrupt, StreamkitError
from streamkit.model.ids import TaskId
from streamkit.snapshots import layout
from streamkit.snapshots.manifest import Role, RowsFile
from streamkit.snapshots.manifest_file import ANOTHER
from streamkit.snapshots.store import NotStored, SnapshotStore
from streamkit.state.keys import TIMERS_PREFIX
from streamkit.state.row_groups import GROUP_BYTES, TIMER_GROUP_AT, GroupRange, Row
from streamkit.state.sst import SstRows, SstWriter


class Shelf(msgspec.Struct, frozen=True):
    """The place of one snapshot: its folder in a snapshot store, and a folder on this host for work on its files."""

    store: SnapshotStore
    folder: str
    scratch: Path


class RowsDigest:
    """Digest and count of rows that come in the order of their keys."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self.rows = 0

    def add(self, key: bytes, value: bytes) -> None:
        """Take in the next row."""
        self._hash.update(len(key).to_bytes(4, "big") + key + len(value).to_bytes(4, "big") + value)
        self.rows += 1

    def hex(self) -> str:
        """The digest of all rows so far."""
        return self._hash.hexdigest()


def digest_of(rows: Iterable[Row]) -> str:
    """`rows_sha256` of these rows."""
    digest = RowsDigest()
    for key, value in rows:
        digest.add(key, value)
    return digest.hex()


class RowsWriter:
    """Writes one file of a task's rows: they come in the order of their keys, and there is at least one."""

    def __init__(self, shelf: Shelf, task: TaskId, role: Role) -> None:
        self._shelf = shelf
        self._task = task
        self._role = role
        self._path = shelf.scratch / f"{uuid4().hex}.sst"
        self._sst = SstWriter(self._path)
        self._digest = RowsDigest()
        # What keys and values amount to, before they are packed.
        self.bytes = 0

    def add(self, key: bytes, value: bytes) -> None:
        """Append a row."""
        self._sst.add(key, value)
        self._digest.add(key, value)
        self.bytes += len(key) + len(value)

    def store(self, groups: GroupRange) -> RowsFile:
        """Complete the file and store it; `groups` are the least and the greatest of which it has rows."""
        self._sst.finish()
        content = self._path.read_bytes()
        self._path.unlink()
        sha256 = hashlib.sha256(content).hexdigest()
        path = layout.rows_path(self._task, groups, self._role.value, sha256)
        self._shelf.store.put(f"{self._shelf.folder}/{path}", content)
        return RowsFile(
            role=self._role,
            path=path,
            groups=groups,
            rows=self._digest.rows,
            bytes=len(content),
            sha256=sha256,
            rows_sha256=self._digest.hex(),
        )


class CheckedRows(msgspec.Struct, frozen=True):
    """A file of rows that was fetched and is exactly what the manifest says of it."""

    file: RowsFile
    _where: str
    _folder: Path

    def rows(self, groups: GroupRange, after: bytes = b"") -> Iterator[Row]:
        """The rows of these groups whose keys come after that one, in the order of the keys."""
        start, end = groups.bounds
        with _blamed(self._where, self.file), SstRows(self._folder) as opened:
            if self.file.role is Role.VALUES:
                found = opened.rows(max(start, after), end)
            else:
                found = (
                    row
                    for row in opened.rows(after)
                    if start <= row[0][TIMER_GROUP_AT : TIMER_GROUP_AT + GROUP_BYTES] < end
                )
            yield from (row for row in found if row[0] != after)

    def discard(self) -> None:
        """Remove what was fetched."""
        rmtree(self._folder, ignore_errors=True)


def fetch(shelf: Shelf, file: RowsFile) -> CheckedRows:
    """Bring a file to this host and compare everything: its bytes, its rows, and whose they are.

    Raises:
        SnapshotDamaged: it is missing, or not what the manifest says.
    """
    name = f"{shelf.folder}/{file.path}"
    try:
        content = shelf.store.get(name)
    except NotStored as error:
        raise _damaged(name, file, "it is not there") from error
    if len(content) != file.bytes:
        raise _damaged(name, file, f"it has {len(content)} bytes and should have {file.bytes}")
    sha256 = hashlib.sha256(content).hexdigest()
    if sha256 != file.sha256:
        raise _damaged(name, file, f"its digest is {sha256} and should be {file.sha256}")
    folder = shelf.scratch / uuid4().hex
    path = folder.with_suffix(".sst")
    with _blamed(name, file):
        path.write_bytes(content)
        with SstRows(folder, path) as opened:
            _require_rows(name, file, opened.rows())
    return CheckedRows(file, name, folder)


def _require_rows(name: str, file: RowsFile, rows: Iterator[Row]) -> None:
    """Compare the rows of a file with what is known of them; every row is looked at, so without `place_of`."""
    digest = RowsDigest()
    kind, at = (TIMERS_PREFIX, TIMER_GROUP_AT) if file.role is Role.TIMERS else (b"", 0)
    start, end = file.groups.bounds  # no timer begins like one of these groups
    for key, value in rows:
        if not (start <= key[at : at + GROUP_BYTES] < end and key.startswith(kind)):
            raise _damaged(name, file, f"it has a row that does not belong there, under {key[:40].hex()}")
        digest.add(key, value)
    if (digest.rows, digest.hex()) != (file.rows, file.rows_sha256):
        raise _damaged(
            name, file, f"it has {digest.rows} rows, and they are not the {file.rows} that were written"
        )


@contextmanager
def _blamed(name: str, file: RowsFile) -> Iterator[None]:
    """Whatever is wrong with the rows is said of the file that they came from."""
    try:
        yield
    except StateCorrupt as error:
        raise _damaged(name, file, f"{error.problem}; {error.detail}".rstrip("; ")) from error
    except OSError as error:
        raise Misconfigured(
            "the folder for work on snapshots cannot be used",
            where=name,
            detail=str(error),
            hint="see `df -h` and `ulimit -n`; it lies inside the folder that state_dir gives",
        ) from error


def _damaged(name: str, file: RowsFile, detail: str) -> StreamkitError:
    what = f"{file.rows} rows of {file.role.value}, groups {file.groups}"
    return SnapshotDamaged(
        f"a file of a snapshot is damaged: {what}", where=name, detail=detail, hint=ANOTHER
    )
