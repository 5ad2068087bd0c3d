"""State on disk: one RocksDB per task (`state/rocks_store.py`), under one memory budget per process.

Folders belong to the host: a task that moves to a neighbour process finds its database there and needs only the
changelog's tail. Nothing is ever wiped because of a crash; what is damaged or held by somebody else is stepped around.
"""

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote
from weakref import WeakSet

import structlog
from rocksdict import (
    BlockBasedIndexType,
    BlockBasedOptions,
    Cache,
    DBCompressionType,
    Options,
    Rdict,
    WriteBufferManager,
)

from streamkit.errors import Bug, Misconfigured, StateCorrupt, StateInUse, StreamkitError
from streamkit.state.rocks_store import DAMAGED_MARK, RocksStore, host_problem
from streamkit.state.store import StateStore

log = structlog.get_logger()

# Damaged folders are kept for whoever wants to know why; more than two of a task tell nothing new.
DAMAGED_KEPT = 2
# Beside a locked folder stands at most a handful of others: stopped predecessors on this host.
SIBLINGS_MAX = 8
_MIB = 1024 * 1024
# One task's memtable. A small one is flushed often and its levels stay shallow; the budget bounds the sum of all.
_WRITE_BUFFER_BYTES_MAX = 32 * _MIB
# Each database takes memory in pieces of this size: with a hundred small tasks the default of 1 MiB adds up.
_ARENA_BYTES = 256 * 1024
# Half of the thousand descriptors that a process usually has: it has connections too.
FILES_MAX = 512
# A database needs some whatever it is told, and the first ones should not get all.
_STORE_FILES_MIN = 24
_STORES_EXPECTED = 16

# What a database consists of before it is one: left by a crash in its first moments, and nothing is lost.
_HOLLOW = re.compile(r"LOCK|LOG.*|IDENTITY|MANIFEST-\d+|OPTIONS-.*|\d+\.(log|dbtmp)|rocksdict-config\.json")
_LOCKED = re.compile(r"lock hold by current process|While lock file.*Resource temporarily unavailable")
# RocksDB puts old logs of its own aside before it takes the lock: of two processes that open a folder at the same time one
# finds a log gone. That says nothing about the database.
_RACED = re.compile(r"LOG(\.old\.\d+)?: No such file")
OPEN_TRIES = 5


class RocksStores:
    """The state folder of a host as this process sees it; all its databases share one budget."""

    def __init__(
        self, folder: Path, cache_bytes: int, write_buffer_bytes: int, files_max: int = FILES_MAX
    ) -> None:
        """Take the budget; the folder is made when the first store is opened."""
        self._folder = folder
        self._files_max = files_max
        self._options = _options(cache_bytes, write_buffer_bytes)
        self._stores: WeakSet[RocksStore] = WeakSet()

    def open(self, name: str, *, beside: bool = True) -> StateStore:
        """The store of the task `name`, as the last owner on this host left it.

        Raises:
            Misconfigured: the folder cannot be written to.
            StateInUse: another process holds the folder, and `beside` is false.
            Retry: the disk is full, or there are too many open files.
        """
        folder = self._task_folder(name)
        for number in range(SIBLINGS_MAX):
            path = folder if number == 0 else folder.with_name(f"{folder.name}~{number}")
            try:
                store = self._open_or_renew(path, folder)
            except StateInUse:
                if not beside:
                    raise
                log.warning("state folder is held by another process", task=name, folder=str(path))
                continue
            self._stores.add(store)
            if number == 0:
                self._remove_siblings(folder)
            return store
        raise Misconfigured(
            f'all {SIBLINGS_MAX} state folders of task "{name}" are held by other processes',
            where=str(folder),
            hint="stop the processes that hold them: `fuser -v` on the LOCK files names them",
        )

    def discard(self, name: str) -> None:
        """Remove the stored state of a closed task, except for what other processes hold."""
        folder = self._task_folder(name)
        self._remove(folder)
        self._remove_siblings(folder)

    def close(self) -> None:
        """Release the shared budget.

        Raises:
            Bug: a store is still open.
        """
        for store in self._stores:
            if store.is_open:
                raise Bug("the state stores were closed before one of them", where=str(store.folder))
        self._stores.clear()

    def _task_folder(self, name: str) -> Path:
        # Whatever a stage is called, its folder is inside ours and is no sibling or damaged one of another task.
        safe = quote(name, safe="").replace("~", "%7E").replace(".damaged-", "%2Edamaged-")
        return self._folder / (f"%2E{safe[1:]}" if safe.startswith(".") else safe)

    def _open_or_renew(self, path: Path, folder: Path) -> RocksStore:
        """The store in `path`; a damaged one is set aside first."""
        try:
            return self._open(path)
        except StateInUse:
            raise
        except StateCorrupt as error:
            log.warning("state is damaged: set aside", folder=str(path), problem=str(error))
            with _explained(path):
                _set_aside(path, folder)
        return self._open(path)

    def _open(self, path: Path) -> RocksStore:
        with _explained(path):
            if path.exists() and not path.is_dir():
                raise StateCorrupt("the state folder is a file", where=str(path))
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.mkdir(mode=0o700, exist_ok=True)
            path.chmod(0o700)  # it may come from a time when others could read it
            is_hollow = all(_HOLLOW.fullmatch(each.name) for each in path.iterdir())
        # A folder with other files but without a database is not ours to fill.
        self._options.create_if_missing(is_hollow)
        self._options.set_max_open_files(self._files_for_one())
        store = RocksStore(self._open_database(path), path)
        if (path / DAMAGED_MARK).exists():
            store.close()
            raise StateCorrupt("it was found damaged while in use", where=str(path))
        return store

    def _open_database(self, path: Path) -> Rdict:
        tries = 0
        while True:
            try:
                return Rdict(str(path), self._options, column_families={"default": self._options})
            except Exception as error:
                tries += 1
                if tries == OPEN_TRIES or not _RACED.search(str(error)):
                    raise _explain_open(error, path) from error

    def _files_for_one(self) -> int:
        """The share of the next database: half of what is fair, for nobody knows how many will follow."""
        stores = max(_STORES_EXPECTED, sum(store.is_open for store in self._stores) + 1)
        return max(_STORE_FILES_MIN, self._files_max // (2 * stores))

    def _remove_siblings(self, folder: Path) -> None:
        for number in range(1, SIBLINGS_MAX):
            self._remove(folder.with_name(f"{folder.name}~{number}"))

    def _remove(self, path: Path) -> None:
        """Remove a task's folder unless a live process holds it."""
        if not path.exists():
            return
        try:
            Rdict.destroy(str(path), self._options)  # takes the lock first
        except Exception as error:  # noqa: BLE001 - rocksdict raises nothing narrower
            if _is_held(error):
                return
        with _explained(path):
            _delete(path)


def _options(cache_bytes: int, write_buffer_bytes: int) -> Options:
    """How every database of a process is run: small ones cost little, ten million keys are no surprise."""
    table = BlockBasedOptions()
    table.set_block_cache(Cache.new_hyper_clock_cache(cache_bytes, 0))
    table.set_block_size(16 * 1024)
    table.set_bloom_filter(10, False)  # a key that is not there costs no read, 99 times of 100
    table.set_cache_index_and_filter_blocks(True)  # or they would live outside of the budget
    # In pieces: the whole filter of a large file, several megabytes, would be evicted and read again for every get.
    # With ten million keys that was 365 us against 21; with few keys the pieces cost some 0.3 us.
    table.set_index_type(BlockBasedIndexType.two_level_index_search())
    table.set_partition_filters(True)
    table.set_pin_top_level_index_and_filter(True)
    table.set_pin_l0_filter_and_index_blocks_in_cache(True)
    table.set_format_version(5)

    options = Options(raw_mode=True)
    options.set_block_based_table_factory(table)
    options.set_write_buffer_manager(WriteBufferManager(write_buffer_bytes, False))
    options.set_write_buffer_size(min(_WRITE_BUFFER_BYTES_MAX, write_buffer_bytes))
    options.set_arena_block_size(_ARENA_BYTES)
    # Writes that must wait let committed rows pile up in memory: leave room for flushes to catch up.
    options.set_max_write_buffer_number(4)
    options.set_level_zero_slowdown_writes_trigger(40)
    options.set_level_zero_stop_writes_trigger(60)
    options.set_max_background_jobs(2)
    options.set_compression_type(DBCompressionType.lz4())
    options.set_level_compaction_dynamic_level_bytes(True)
    options.set_bytes_per_sync(_MIB)
    options.set_skip_stats_update_on_db_open(True)  # opening takes milliseconds, however much there is
    options.set_avoid_unnecessary_blocking_io(True)
    options.set_max_manifest_file_size(4 * _MIB)
    options.set_keep_log_file_num(2)
    options.set_max_log_file_size(_MIB)
    options.set_stats_dump_period_sec(0)
    options.set_stats_persist_period_sec(0)
    return options


def _is_held(error: Exception) -> bool:
    """Whether another process has the folder, or is opening it at this moment."""
    return bool(_LOCKED.search(str(error)) or _RACED.search(str(error)))


def _explain_open(error: Exception, path: Path) -> StreamkitError:
    if _is_held(error):
        return StateInUse("the state folder is held by another process", where=str(path))
    host = host_problem(error, path)
    return host or StateCorrupt(
        "the state folder holds no sound database", where=str(path), detail=str(error)
    )


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Whatever the file system refuses here is for a person to change."""
    try:
        yield
    except OSError as error:
        raise (
            host_problem(error, path)
            or Misconfigured(
                "the state folder cannot be written to",
                where=str(path),
                detail=str(error),
                hint="give the worker a folder of its own by state_dir, on a local disk",
            )
        ) from error


def _set_aside(path: Path, folder: Path) -> None:
    """Rename a damaged folder, and remove those of its kind that are too old to matter."""
    pattern = re.compile(re.escape(folder.name) + r"\.damaged-(\d+)")
    numbers = sorted(
        int(match[1]) for each in folder.parent.iterdir() if (match := pattern.fullmatch(each.name))
    )
    path.rename(folder.with_name(f"{folder.name}.damaged-{(numbers[-1] if numbers else 0) + 1}"))
    for number in numbers[: len(numbers) + 1 - DAMAGED_KEPT]:
        _delete(folder.with_name(f"{folder.name}.damaged-{number}"))


def _delete(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
