"""Sorted files: rows of state in a file that RocksDB can take in as a whole, and reading such a file back.

RocksDB has no reader for a single file that the binding gives us: a file that is to be read is moved into a database
of its own, in a folder that the caller throws away. As in `state/rocks_store.py`, no iterator may outlive its database.
"""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Self
from weakref import WeakSet

from rocksdict import (
    BlockBasedOptions,
    DBCompressionType,
    IngestExternalFileOptions,
    Options,
    Rdict,
    ReadOptions,
    SstFileWriter,
)

from streamkit.errors import Bug, StateCorrupt, StreamkitError
from streamkit.state.rocks_cursor import Cursor
from streamkit.state.rocks_store import host_problem
from streamkit.state.row_groups import Row

# Rows that are read at a time: as in `state/rocks_store.py`, but here nobody waits for the first one.
READ_ROWS = 1024
# A database that holds one file and takes no writes.
_ARENA_BYTES = 64 * 1024


def _options(*, is_new: bool = True) -> Options:
    table = BlockBasedOptions()
    table.set_block_size(16 * 1024)
    table.set_format_version(5)
    options = Options(raw_mode=True)
    options.set_block_based_table_factory(table)
    options.set_compression_type(DBCompressionType.lz4())
    options.create_if_missing(is_new)
    options.set_arena_block_size(_ARENA_BYTES)
    options.set_max_background_jobs(1)
    options.set_stats_dump_period_sec(0)
    options.set_stats_persist_period_sec(0)
    return options


class SstWriter:
    """Writes one file, row by row in the order of the keys; there must be at least one row."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._writer = SstFileWriter(_options())
        try:
            self._writer.open(str(path))
        except Exception as error:  # rocksdict raises nothing narrower
            raise self._explain(error) from error

    def add(self, key: bytes, value: bytes) -> None:
        """Append a row.

        Raises:
            Bug: its key does not come after the one before.
        """
        try:
            self._writer[key] = value
        except Exception as error:
            raise self._explain(error) from error

    def finish(self) -> None:
        """Complete the file."""
        try:
            self._writer.finish()
        except Exception as error:
            raise self._explain(error) from error

    def _explain(self, error: Exception) -> StreamkitError:
        return host_problem(error, self._path) or Bug(
            "a sorted file was not written", where=str(self._path), detail=str(error)
        )


class SstRows:
    """The rows of one file. Close it: its folder is locked until then."""

    def __init__(self, folder: Path, file: Path | None = None) -> None:
        """Open the database in `folder`; with a file, make it first and move the file there.

        Raises:
            StateCorrupt: it is no such file.
        """
        self._folder = folder
        self._cursors: WeakSet[Cursor] = WeakSet()
        self._database: Rdict | None = None
        moving = IngestExternalFileOptions()
        moving.set_move_files(True)
        try:
            self._database = Rdict(str(folder), _options(is_new=file is not None))
            if file is not None:
                self._database.ingest_external_file([str(file)], moving)
        except Exception as error:
            self.close()
            raise self._explain(error) from error

    def rows(self, start: bytes = b"", end: bytes | None = None) -> Iterator[Row]:
        """The rows from `start` on and before `end`, in the order of their keys.

        Raises:
            StateCorrupt: the file is damaged inside.
        """
        if self._database is None:
            raise Bug("a closed file of rows was read", where=str(self._folder))
        options = ReadOptions()
        if end is not None:
            options.set_iterate_upper_bound(end)
        cursor = Cursor(self._database.iter(options), options)
        cursor.at.seek(start)
        self._cursors.add(cursor)
        return cursor.walk(READ_ROWS, "a closed file of rows was read", self._explain)

    def close(self) -> None:
        """Release the folder; what is still being walked ends with an error."""
        for cursor in list(self._cursors):
            cursor.at = None
        database, self._database = self._database, None
        if database is not None:
            with suppress(Exception):  # there is nothing to flush, and the folder is thrown away
                database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _explain(self, error: Exception) -> StreamkitError:
        return host_problem(error, self._folder) or StateCorrupt(
            "a file of rows cannot be read", where=str(self._folder), detail=str(error)
        )
