import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamkit.errors import StateCorrupt
from streamkit.model.ids import KEY_GROUPS
from streamkit.model.keys import key_group, shuffle_partition
from streamkit.state.keys import COMMIT_KEY, PLAN_KEY, store_id
from streamkit.state.kinds import KINDS
from streamkit.state.list_cells import ListCells
from streamkit.state.map_cells import MapCells
from streamkit.state.memory import MemoryStores
from streamkit.state.rocks_store import OFFSET_KEY
from streamkit.state.row_groups import EVERY_GROUP, GroupRange, RowPlace, groups_of, place_of
from streamkit.state.spec import StoreSpec
from streamkit.state.task_state import TaskState
from streamkit.state.timers import TimerCells
from streamkit.state.value_cells import ValueCells, WindowCells

TIMES = st.integers(-(2**63), 2**63 - 1)


def change(cells: Any, key: bytes, namespace: bytes, time: int) -> None:
    """Have a row or more of this key in the cells, whatever their kind."""
    match cells:
        case WindowCells():
            cells.put((key, namespace), 1)
        case ValueCells():
            cells.put(key, 1)
        case MapCells():
            cells.put(key, namespace, 1)
        case ListCells():
            cells.extend(key, [1, 2, 3])
        case TimerCells():
            cells.add(key, time, namespace)
        case _:
            pytest.fail(f"a kind that this test does not know: {type(cells)}")


@pytest.mark.parametrize("kind", KINDS)
@given(
    name=st.text(min_size=1, max_size=20),
    key=st.binary(max_size=300),
    namespace=st.binary(max_size=20),
    time=TIMES,
)
def test_every_row_of_every_kind_tells_its_group_and_its_store(
    kind: str, name: str, key: bytes, namespace: bytes, time: int
) -> None:
    spec = StoreSpec(name, kind, int, bytes)
    state = TaskState(MemoryStores().open("t-0"), [spec])
    change(state.cells(spec), key, namespace, time)
    rows = state.freeze()
    assert len(rows) == (3 if kind == "list" else 1)
    wanted = RowPlace(key_group(key), store_id(name), kind.endswith("timers"))
    assert {place_of(row) for row in rows} == {wanted}


@pytest.mark.parametrize("key", [COMMIT_KEY, PLAN_KEY, OFFSET_KEY, b"\xff\xff"])
def test_reserved_rows_belong_to_no_group(key: bytes) -> None:
    assert place_of(key) is None


@pytest.mark.parametrize(
    "key",
    [b"", b"\x00\x01a", b"\x04\x00abkey", b"\xfd\x00abkey", b"\xfe", b"\xfe" + bytes(12), b"\xff\x00abkey"],
)
def test_a_row_of_no_kind_is_refused(key: bytes) -> None:
    with pytest.raises(StateCorrupt, match="no kind of state writes"):
        place_of(key)


@given(partitions=st.integers(1, KEY_GROUPS), key=st.binary(max_size=20))
def test_a_partition_owns_the_groups_whose_keys_are_sent_to_it(partitions: int, key: bytes) -> None:
    group, owner = key_group(key), shuffle_partition(key, partitions)
    owners = [
        number
        for number in range(partitions)
        if groups_of(number, partitions).common(GroupRange(group, group))
    ]
    assert owners == [owner]


@given(partitions=st.integers(1, KEY_GROUPS))
def test_the_ranges_of_all_partitions_follow_each_other(partitions: int) -> None:
    ranges = [groups_of(number, partitions) for number in range(partitions)]
    assert all(ranges)
    assert [group for each in ranges for group in range(each.first, each.last + 1)] == list(range(KEY_GROUPS))


def test_ranges_of_groups() -> None:
    assert str(EVERY_GROUP) == "0-1023"
    assert EVERY_GROUP.bounds == (b"\x00\x00", b"\x04\x00")
    assert GroupRange(3, 9).common(GroupRange(7, 20)) == (7, 9)
    assert not GroupRange(3, 9).common(GroupRange(10, 20))
    assert re.fullmatch(r"\d+-\d+", f"{GroupRange(3, 9)}")
