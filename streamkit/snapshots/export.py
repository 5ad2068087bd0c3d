"""Export: the rows of one task, from its open store into files of a snapshot.

Files are about 32 MB of rows each and end where a key group ends, so that whoever takes some of the groups reads little
else. Where they end depends on the rows alone: equal rows make equal files, by `rows_sha256`. Values come in the order
of their groups; timers do not, so they are counted first and then written to all their files at once.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping

from streamkit.errors import Bug
from streamkit.model.ids import TaskId
from streamkit.snapshots.manifest import Role, RowsFile
from streamkit.snapshots.rows_file import RowsWriter, Shelf
from streamkit.state.keys import KEY_AT, TIMERS_PREFIX, store_ids
from streamkit.state.row_groups import (
    GROUP_BYTES,
    TIMER_GROUP_AT,
    GroupRange,
    Row,
    place_of,
)
from streamkit.state.store import StateStore

# Rows of so many bytes are in a file, before they are packed: more if a group has more, which is cut at twice that.
FILE_BYTES = 32 * 1024 * 1024
_TIMER_KEY_AT = TIMER_GROUP_AT + GROUP_BYTES
# How many files of timers are written at once: each takes a descriptor and some memory.
WRITERS_MAX = 64


def export_rows(
    state: StateStore,
    owned: Mapping[str, GroupRange],
    task: TaskId,
    shelf: Shelf,
    *,
    file_bytes: int = FILE_BYTES,
) -> tuple[RowsFile, ...]:
    """Write all rows of some stores of a task, and tell of the files, values first; reserved rows are left out.

    The store must hold all that is committed, and nobody may write to it meanwhile. `owned` has for each store of the stage
    the groups that the task has keys of, which is every group where state is placed by source: `StoreShare.groups`. Rows
    of stores that the stage has no more are left behind.

    Raises:
        Bug: there is a row of another task's group.
        StateCorrupt: there is a row that no kind of state writes, or the store cannot be read.
    """
    ids = {store: owned[name] for name, store in store_ids(sorted(owned)).items()}
    exporting = _Exporting(task, ids, shelf, file_bytes)
    values = exporting.values(_values(state, ids))
    return (*values, *exporting.timers(state, sorted(ids)))


def _values(state: StateStore, ids: Collection[bytes]) -> Iterator[Row]:
    """The rows of these stores that are no timers."""
    for row in state.scan(b""):
        key = row[0]
        if key >= TIMERS_PREFIX:
            return
        if key[GROUP_BYTES:KEY_AT] in ids:
            yield row


def _timers(state: StateStore, ids: Collection[bytes]) -> Iterator[Row]:
    for each in ids:
        yield from state.scan(TIMERS_PREFIX + each)


class _Exporting:
    """One task's export."""

    def __init__(
        self, task: TaskId, owned: Mapping[bytes, GroupRange], shelf: Shelf, file_bytes: int
    ) -> None:
        self._task = task
        self._owned = owned
        self._shelf = shelf
        self._file_bytes = file_bytes

    def values(self, rows: Iterator[Row]) -> Iterator[RowsFile]:
        """Write rows that come in the order of their groups."""
        writer: RowsWriter | None = None
        prefix, first, group = b"", 0, 0
        for key, value in rows:
            if key[:KEY_AT] != prefix:
                before, group, prefix = group, self._own_group(key), key[:KEY_AT]
                if group != before and writer is not None and writer.bytes >= self._file_bytes:
                    yield writer.store(GroupRange(first, before))
                    writer = None
            elif writer is not None and writer.bytes >= 2 * self._file_bytes:
                yield writer.store(GroupRange(first, group))
                writer = None
            if writer is None:
                writer, first = RowsWriter(self._shelf, self._task, Role.VALUES), group
            writer.add(key, value)
        if writer is not None:
            yield writer.store(GroupRange(first, group))

    def timers(self, state: StateStore, ids: Collection[bytes]) -> Iterator[RowsFile]:
        """Write all timers: they come in the order of store and time."""
        sizes: Counter[bytes] = Counter()
        for each in ids:
            own: set[bytes] = set()
            for key, value in _timers(state, [each]):
                prefix = key[TIMER_GROUP_AT:_TIMER_KEY_AT]
                if prefix not in own:
                    self._own_group(key)
                    own.add(prefix)
                sizes[prefix] += len(key) + len(value)
        ranges = self._ranges(sizes)
        for at in range(0, len(ranges), WRITERS_MAX):
            yield from self._timers_of(_timers(state, ids), ranges[at : at + WRITERS_MAX])

    def _ranges(self, sizes: Mapping[bytes, int]) -> list[GroupRange]:
        """Which groups go together into a file."""
        ranges: list[GroupRange] = []
        room = 0
        for prefix in sorted(sizes):
            group = int.from_bytes(prefix, "big")
            if ranges and room > 0:
                ranges[-1] = GroupRange(ranges[-1].first, group)
            else:
                ranges.append(GroupRange(group, group))
                room = self._file_bytes
            room -= sizes[prefix]
        return ranges

    def _timers_of(self, rows: Iterator[Row], ranges: list[GroupRange]) -> Iterator[RowsFile]:
        """Write those timers whose groups are in these ranges, the files in the order of the ranges."""
        at = {
            group.to_bytes(GROUP_BYTES, "big"): number
            for number, each in enumerate(ranges)
            for group in range(each.first, each.last + 1)
        }
        writers: list[RowsWriter | None] = [None] * len(ranges)
        done: list[list[RowsFile]] = [[] for _ in ranges]
        for key, value in rows:
            number = at.get(key[TIMER_GROUP_AT:_TIMER_KEY_AT])
            if number is None:
                continue
            writer = writers[number]
            if writer is None:
                writer = writers[number] = RowsWriter(self._shelf, self._task, Role.TIMERS)
            writer.add(key, value)
            if writer.bytes >= 2 * self._file_bytes:
                done[number].append(writer.store(ranges[number]))
                writers[number] = None
        for groups, writer, files in zip(ranges, writers, done, strict=True):
            yield from files
            if writer is not None:
                yield writer.store(groups)

    def _own_group(self, key: bytes) -> int:
        place = place_of(key)
        if place is None:
            raise Bug("a reserved row was exported", where=f"state key {key[:40].hex()}")
        groups = self._owned[place.store]
        if not groups.first <= place.group <= groups.last:
            raise Bug(
                f"task {self._task} has state of group {place.group}, and owns {groups}",
                hint="the count of the shuffle was changed under its state; do not start from this snapshot",
            )
        return place.group
