"""TimerCells: the timers of one step of one task, durable and in the order in which they come due.

A timer is a row without content. Its state key begins with its time, so the store itself is the queue: the rows that
come next are held in memory, the others stay where they are, however many there are. Equal timers are equal rows.

    0xfe, store id (2 bytes), time (8 bytes), key group (2 bytes), length of the key as a varint, key, namespace
"""

from collections.abc import Mapping
from heapq import heappop, heappush
from typing import NamedTuple, Protocol

from streamkit.model.ids import MAX_TIME, MIN_TIME
from streamkit.model.keys import GroupPrefixes
from streamkit.model.varint import read_uvarint, uvarint
from streamkit.state.cells import Cells, Changes, Touched, require_short
from streamkit.state.keys import TIMERS_PREFIX
from streamkit.state.spec import StoreSpec

# Rows that are brought into memory at a time.
LOADED_AT_ONCE = 4_096
# Beyond this many in memory, the later half goes back to being rows only: about 20 MB per step and task.
NEAR_MAX = 100_000
# What one of them takes in memory.
TIMER_BYTES = 200

# Added to a time, so that its bytes sort like the number: negative ones first.
_SIGN = 1 << 63
_PRESENT = b"\x01"
# The span has not changed the row; compared by identity.
_UNTOUCHED = b"untouched"
_TIME_AT = len(TIMERS_PREFIX) + 2
_GROUP_AT = _TIME_AT + 8
_KEY_AT = _GROUP_AT + 2


class StoredTimer(NamedTuple):
    """One timer that came due."""

    key: bytes
    time: int
    namespace: bytes


class Before(NamedTuple):
    """How a row was before it was changed: what this span said of it, and whether it was among those in memory."""

    content: bytes | None
    is_alive: bool


class TimerRows(Protocol):
    """What lies under the overlay, in key order."""

    def find_keys(self, prefix: bytes, start: bytes, count: int) -> list[bytes]:
        """The first `count` state keys from `start` on that begin with `prefix`."""
        ...


class TimerCells(Cells):
    """The timers of one step.

    `next_due` is the time of the earliest timer or, after one was removed, an earlier time; `MAX_TIME` if there is
    none. It is `MIN_TIME` until somebody has looked.
    """

    __slots__ = (
        "_alive",
        "_dirty",
        "_horizon",
        "_journal",
        "_marked_horizon",
        "_near",
        "_prefix",
        "_prefixes",
        "_rows",
        "next_due",
    )

    def __init__(self, spec: StoreSpec, store_id: bytes, prefixes: GroupPrefixes, rows: TimerRows) -> None:  # noqa: ARG002
        self._prefix = TIMERS_PREFIX + store_id
        self._prefixes = prefixes
        self._rows = rows
        self._dirty: dict[bytes, bytes | None] = {}
        # A heap of the rows below the horizon, and which of them still count; None: all there are is below it.
        self._near: list[bytes] = []
        self._alive: set[bytes] = set()
        self._horizon: bytes | None = self._prefix
        # While changes may be undone: how each row that was changed since the last `settle` was before.
        self._journal: dict[bytes, Before] | None = None
        self._marked_horizon: bytes | None = None
        self.next_due = MIN_TIME

    @classmethod
    def in_words(cls, spec: StoreSpec) -> str:
        """As `Cells.in_words`."""
        return f"timers in {spec.kind.removesuffix('_timers')} time"

    def add(self, key: bytes, time: int, namespace: bytes = b"") -> None:
        """Have a timer; one that is there already stays one."""
        row = self._row(key, time, namespace)
        if self._journal is not None:
            self._note(row)
        if self._horizon is None or row < self._horizon:
            if row in self._alive:
                return
            self._alive.add(row)
            heappush(self._near, row)
            if len(self._near) > NEAR_MAX:
                self._let_go()
        self._dirty[row] = _PRESENT
        self.next_due = min(self.next_due, time)

    def remove(self, key: bytes, time: int, namespace: bytes = b"") -> None:
        """Have no such timer, whether or not there was one."""
        row = self._row(key, time, namespace)
        if self._journal is not None:
            self._note(row)
        if self._horizon is None or row < self._horizon:
            if row not in self._alive:
                return
            self._alive.discard(row)
        self._dirty[row] = None

    def pop_due(self, up_to: int) -> StoredTimer | None:
        """The earliest timer that is due at this time, removed; None if there is none, and `next_due` is exact then."""
        row = self._first()
        if row is None:
            self.next_due = MAX_TIME
            return None
        timer = _timer(row)
        self.next_due = timer.time
        if timer.time > up_to:
            return None
        if self._journal is not None:
            self._note(row)
        heappop(self._near)
        self._alive.discard(row)
        self._dirty[row] = None
        return timer

    def near(self) -> int:
        """How many timers are in memory."""
        return len(self._alive)

    # The life of a span, as in the other cells.

    def freeze(self, rows: dict[bytes, bytes | None], touched: Touched) -> None:  # noqa: ARG002
        """As `Cells.freeze`."""
        rows.update(self._dirty)
        self._dirty.clear()

    def require_storable(self, rows: Mapping[bytes, bytes | None], bytes_max: int) -> None:
        """As `Cells.require_storable`; a timer is all key."""
        require_short(rows, bytes_max)

    def is_dirty(self) -> bool:
        """As `Cells.is_dirty`."""
        return bool(self._dirty)

    def size_bytes(self) -> int:
        """About how much memory the next timers take."""
        return len(self._near) * TIMER_BYTES

    def evict(self) -> None:
        """Keep only the next few in memory; the others are found again in the rows."""
        while len(self._near) > LOADED_AT_ONCE:
            self._let_go()

    def forget(self) -> None:
        """Drop the changes of this span and everything in memory."""
        self._dirty.clear()
        self._journal = None
        self._look_again()

    # One record, or one timer, at a time: what it did can be undone. The rows stay here until the span ends.

    def prepare(self, changes: Changes, row_bytes_max: int) -> None:  # noqa: ARG002
        """As `Cells.prepare`, but nothing is added."""
        require_short(self._journal or (), row_bytes_max)

    def settle(self) -> None:
        """What was done up to here stays; from now on `undo` can take back what comes."""
        self._journal = {}
        self._marked_horizon = self._horizon

    def undo(self) -> None:
        """Have the timers that there were at the last `settle`."""
        assert self._journal is not None
        for row, before in self._journal.items():
            if before.content is _UNTOUCHED:
                self._dirty.pop(row, None)
            else:
                self._dirty[row] = before.content
            if not before.is_alive:
                self._alive.discard(row)
            elif row not in self._alive:
                self._alive.add(row)
                heappush(self._near, row)
                self.next_due = min(self.next_due, _timer(row).time)
        self._journal.clear()
        if self._horizon != self._marked_horizon:
            self._look_again()
            self._marked_horizon = self._horizon

    def trust(self) -> None:
        """Nothing has to be undone any more."""
        self._journal = None

    def _note(self, row: bytes) -> None:
        assert self._journal is not None
        if row not in self._journal:
            self._journal[row] = Before(self._dirty.get(row, _UNTOUCHED), row in self._alive)

    # Between memory and rows.

    def _look_again(self) -> None:
        """Know nothing of the rows: the next look finds them where they are."""
        self._near.clear()
        self._alive.clear()
        self._horizon = self._prefix
        self.next_due = MIN_TIME

    def _first(self) -> bytes | None:
        while True:
            near, alive = self._near, self._alive  # loading makes new ones
            while near and near[0] not in alive:
                heappop(near)
            if near:
                return near[0]
            if self._horizon is None:
                return None
            self._load()

    def _load(self) -> None:
        """Move the horizon behind the next rows; nothing is in memory when this is called.

        What the open span has set between them comes along, and may be much more than they are.
        """
        start = self._horizon
        assert start is not None
        stored = self._rows.find_keys(self._prefix, start, LOADED_AT_ONCE)
        self._horizon = stored[-1] + b"\x00" if len(stored) == LOADED_AT_ONCE else None
        found = set(stored)
        for row, content in self._dirty.items():
            if row >= start and (self._horizon is None or row < self._horizon):
                if content is None:
                    found.discard(row)
                else:
                    found.add(row)
        self._alive = found
        self._near = sorted(found)  # sorted is a heap
        while len(self._near) > NEAR_MAX:
            self._let_go()

    def _let_go(self) -> None:
        """Draw the horizon nearer: the later half is found again in the rows, or in what the span has changed."""
        self._near.sort()
        half = len(self._near) // 2
        self._horizon = self._near[half]
        self._alive.difference_update(self._near[half:])
        del self._near[half:]

    def _row(self, key: bytes, time: int, namespace: bytes) -> bytes:
        stamp = (time + _SIGN).to_bytes(8, "big")
        return self._prefix + stamp + self._prefixes[key] + uvarint(len(key)) + key + namespace


def _timer(row: bytes) -> StoredTimer:
    length, at = read_uvarint(row, _KEY_AT)
    time = int.from_bytes(row[_TIME_AT:_GROUP_AT], "big") - _SIGN
    return StoredTimer(row[at : at + length], time, row[at + length :])
