"""RocksStore: the state of one task in one RocksDB.

The write-ahead log is off: the changelog is one already. A batch never spans two memtables and memtables reach the
disk in order, so after a crash a database is some prefix of its batches, and the changelog offset that each batch
carries tells which.

rocksdict, the binding, has four traps that are closed here: `items()` ends without a word at a damaged block, so
scans ask for the status; a database stays locked while an iterator or a bound method of it is alive; an iterator whose
options were collected ends wherever the freed memory says; errors are plain exceptions, which only their text tells
apart.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from weakref import WeakSet

import structlog
from rocksdict import Rdict, ReadOptions, WriteBatch, WriteOptions

from streamkit.errors import Bug, Misconfigured, Retry, StateCorrupt, StreamkitError
from streamkit.state.keys import RESERVED_PREFIX, successor
from streamkit.state.rocks_cursor import Cursor
from streamkit.state.store import Writes

log = structlog.get_logger()

# The changelog offset lives among the entries, not in a column family of its own: one memtable, so one atomic flush.
OFFSET_KEY = RESERVED_PREFIX + b"\x00offset"
# A folder that holds this file was found damaged while it was in use.
DAMAGED_MARK = "DAMAGED"
# Rows that a scan reads at a time: few enough to be quick, enough to make the calls in between cheap.
SCAN_ROWS = 256

# What RocksDB says instead of waiting; how long we wait between two tries, before we say so, and altogether.
STALLED = "Write stall"
STALL_PAUSE_FIRST_S = 0.002
STALL_PAUSE_LAST_S = 0.1
STALL_SAID_S = 2.0
STALL_S_MAX = 300.0

# What the operating system says when the database is well and the host is not, and who must act.
_HOST_PROBLEMS: dict[str, type[StreamkitError]] = {
    "Permission denied": Misconfigured,
    "Operation not permitted": Misconfigured,
    "Read-only file system": Misconfigured,
    "No space left on device": Retry,
    "Disk quota exceeded": Retry,
    "Too many open files": Retry,
}


class RocksStore:
    """A StateStore in one RocksDB: one thread reads, another one may write, flush and close meanwhile."""

    def __init__(self, database: Rdict, folder: Path) -> None:
        """Take over an open database.

        Raises:
            StateCorrupt: it has no changelog offset, so it is not ours.
        """
        self.folder = folder
        self._database: Rdict | None = database
        self._get: Callable[[bytes], bytes | None] = database.get
        self._write_options = WriteOptions()
        self._write_options.disable_wal = True
        # A stalled write would hold the GIL, and with it every thread: refuse it instead, and we wait without.
        self._write_options.no_slowdown = True
        self._cursors: WeakSet[Cursor] = WeakSet()
        self._applied = 0
        self._flushed = 0
        self._is_stall_said = False
        # Held while flushing, because a database that is being flushed by another thread cannot be closed.
        self._flushing = threading.Lock()
        try:
            self._changelog_offset = self._read_offset()
        except StreamkitError:
            self.close()
            raise

    @property
    def changelog_offset(self) -> int:
        """The changelog is reflected up to here (exclusive)."""
        self._open()
        return self._changelog_offset

    def get(self, key: bytes) -> bytes | None:
        """The value of this key, or None."""
        try:
            return self._get(key)
        except Exception as error:  # rocksdict raises nothing narrower
            raise self._explain(error) from error

    def scan(self, prefix: bytes, start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """All entries from `start` on whose key begins with `prefix`, in key order; a snapshot of this moment."""
        options = ReadOptions()
        end = successor(prefix)
        if end is not None:
            options.set_iterate_upper_bound(end)
        cursor = Cursor(self._open().iter(options), options)
        cursor.at.seek(max(prefix, start))
        self._cursors.add(cursor)
        rows = cursor.walk(SCAN_ROWS, "a closed state store was scanned", self._explain)
        if OFFSET_KEY.startswith(prefix):
            return (row for row in rows if row[0] != OFFSET_KEY)
        return rows

    def apply(self, writes: Writes, changelog_offset: int) -> None:
        """Write all of it and the offset, or nothing; waits while RocksDB takes no writes.

        Raises:
            Retry: it has taken none for minutes.
        """
        database = self._open()
        began_s = time.monotonic()
        pause_s = STALL_PAUSE_FIRST_S
        while not self._write(database, _batch(writes, changelog_offset)):
            self._mind_the_stall(time.monotonic() - began_s)
            time.sleep(pause_s)
            pause_s = min(pause_s * 2, STALL_PAUSE_LAST_S)
        self._changelog_offset = changelog_offset
        self._applied += 1
        self._is_stall_said = False

    def _write(self, database: Rdict, batch: WriteBatch) -> bool:
        """Whether RocksDB took it; it may be stalled."""
        try:
            database.write(batch, self._write_options)
        except Exception as error:
            if STALLED in str(error):
                return False
            raise self._explain(error) from error
        return True

    def _mind_the_stall(self, lasts_s: float) -> None:
        if lasts_s > STALL_SAID_S and not self._is_stall_said:
            self._is_stall_said = True
            log.warning("RocksDB takes no writes until it has merged its files", folder=str(self.folder))
        if lasts_s > STALL_S_MAX:
            raise Retry(
                "RocksDB takes no writes",
                where=str(self.folder),
                detail=f"it was asked for {STALL_S_MAX:.0f} s; compaction does not keep up",
                hint="give the worker a faster disk by state_dir, or spread its partitions over more hosts",
            )

    def flush(self) -> None:
        """Make what was applied survive a crash; other threads run meanwhile."""
        with self._flushing:
            applied = self._applied
            if applied == self._flushed:
                return
            try:
                self._open().flush()
            except Exception as error:
                raise self._explain(error) from error
            self._flushed = applied

    def close(self) -> None:
        """Flush, and release files and lock. A store that cannot be flushed is closed as it is on disk."""
        if self._database is None:
            return
        try:
            self.flush()
        except StreamkitError as error:
            log.warning("state was not flushed", folder=str(self.folder), problem=str(error))
        with self._flushing:
            for cursor in list(self._cursors):
                cursor.at = None
            self._get = self._get_closed
            database, self._database = self._database, None
            try:
                database.close()
            except Exception as error:  # noqa: BLE001 - it flushes again, and fails again; gone it must be
                log.warning("state was not closed well", folder=str(self.folder), problem=str(error))
            del database

    @property
    def is_open(self) -> bool:
        """Whether the folder is held."""
        return self._database is not None

    def _open(self) -> Rdict:
        if self._database is None:
            raise Bug("a closed state store was used", where=str(self.folder))
        return self._database

    def _get_closed(self, _: bytes) -> bytes | None:
        raise Bug("a closed state store was used", where=str(self.folder))

    def _read_offset(self) -> int:
        data = self.get(OFFSET_KEY)
        if data is None and next(self.scan(b""), None) is None:
            return 0
        if data is None or len(data) != 8:
            raise StateCorrupt("a database has entries but no changelog offset", where=str(self.folder))
        return int.from_bytes(data, "big")

    def _explain(self, error: Exception) -> StreamkitError:
        """What a failure means; one of the database itself is marked in the folder, so that it is not opened again."""
        if isinstance(error, StreamkitError):
            return error
        host = host_problem(error, self.folder)
        if host is not None:
            return host
        with suppress(OSError):
            (self.folder / DAMAGED_MARK).touch()
        return StateCorrupt(
            "the local state is damaged",
            where=str(self.folder),
            detail=str(error),
            hint="it is restored from the changelog; if this happens again, check the disk",
        )


def _batch(writes: Writes, changelog_offset: int) -> WriteBatch:
    """All rows and the offset, as one write."""
    batch = WriteBatch(raw_mode=True)
    put, delete = batch.put, batch.delete
    for key in sorted(writes):  # half the price of random order in large batches
        value = writes[key]
        if value is None:
            delete(key)
        else:
            put(key, value)
    put(OFFSET_KEY, changelog_offset.to_bytes(8, "big"))
    return batch


def host_problem(error: Exception, path: Path) -> StreamkitError | None:
    """The error of a host on which no database could work, or None if it is the database's own."""
    for text, kind in _HOST_PROBLEMS.items():
        if text in str(error):
            return kind(
                f"the state folder cannot be used: {text.lower()}",
                where=str(path),
                detail=str(error),
                hint="see `df -h`, `ulimit -n` and the folder's owner; another folder is given by state_dir",
            )
    return None
