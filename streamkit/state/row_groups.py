"""Row groups: to which key group and which store a row of state belongs, and which groups a partition owns.

Whoever moves state between tasks asks here. Rows of values, maps, lists and windows begin with their group
(`state/keys.py`), so those of a range of groups stand together; timers begin with their time (`state/timers.py`), so
theirs stand among all others. Reserved rows belong to the task itself and to no group.
"""

from typing import NamedTuple

from streamkit.errors import StateCorrupt
from streamkit.model.ids import KEY_GROUPS
from streamkit.state.keys import KEY_AT, RESERVED_PREFIX, TIMERS_PREFIX

# A row of state: its key in the store, and its bytes.
Row = tuple[bytes, bytes]

GROUP_BYTES = 2
# Where a timer's row has its store, and where its group.
TIMER_STORE_AT = len(TIMERS_PREFIX)
TIMER_GROUP_AT = TIMER_STORE_AT + 2 + 8
_TIMER_KEY_AT = TIMER_GROUP_AT + GROUP_BYTES


class GroupRange(NamedTuple):
    """Key groups that follow each other, both ends included; none at all if the last is before the first."""

    first: int
    last: int

    def __bool__(self) -> bool:
        """Whether there is any group."""
        return self.first <= self.last

    def common(self, other: "GroupRange") -> "GroupRange":
        """The groups that are in both."""
        return GroupRange(max(self.first, other.first), min(self.last, other.last))

    @property
    def bounds(self) -> tuple[bytes, bytes]:
        """Where their values begin in the order of the store, and the first bytes behind them."""
        return self.first.to_bytes(GROUP_BYTES, "big"), (self.last + 1).to_bytes(GROUP_BYTES, "big")

    def __str__(self) -> str:
        return f"{self.first}-{self.last}"


EVERY_GROUP = GroupRange(0, KEY_GROUPS - 1)


class RowPlace(NamedTuple):
    """Where a row of state belongs."""

    group: int
    store: bytes
    is_timer: bool


def groups_of(partition: int, partitions: int) -> GroupRange:
    """The groups that one of so many partitions owns: those that `shuffle_partition` sends there."""
    first = -(-partition * KEY_GROUPS // partitions)
    return GroupRange(first, -(-(partition + 1) * KEY_GROUPS // partitions) - 1)


def place_of(key: bytes) -> RowPlace | None:
    """Where the row with this state key belongs; None for a reserved row.

    Raises:
        StateCorrupt: no kind of state has such keys.
    """
    if key.startswith(RESERVED_PREFIX):
        return None
    is_timer = key.startswith(TIMERS_PREFIX)
    if is_timer and len(key) > _TIMER_KEY_AT:
        group, store = key[TIMER_GROUP_AT:_TIMER_KEY_AT], key[TIMER_STORE_AT : TIMER_STORE_AT + 2]
    elif not is_timer and len(key) >= KEY_AT:
        group, store = key[:GROUP_BYTES], key[GROUP_BYTES:KEY_AT]
    else:
        raise _strange(key)
    number = int.from_bytes(group, "big")
    if number >= KEY_GROUPS:
        raise _strange(key)
    return RowPlace(number, store, is_timer)


def _strange(key: bytes) -> StateCorrupt:
    return StateCorrupt(
        "a row of state has a key that no kind of state writes",
        where=f"state key {key[:40].hex()}",
        hint="the state is restored from the changelog; if it comes back, something else writes to the changelog topic",
    )
