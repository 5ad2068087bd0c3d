from pathlib import Path

import pytest

from streamkit.model.ids import MAX_TIME, MIN_TIME
from streamkit.state import timers as module
from streamkit.state.keys import COMMIT_KEY, TIMERS_PREFIX
from streamkit.state.rocks import RocksStores
from streamkit.state.timers import LOADED_AT_ONCE, NEAR_MAX, StoredTimer, TimerCells
from tests.state.alarms import COUNTS, EVENT, MIB, PROCESSING, commit, new_state, pop_all


@pytest.fixture
def cells() -> TimerCells:
    return new_state().cells(EVENT)


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """So little fits into memory that every path is taken."""
    monkeypatch.setattr(module, "LOADED_AT_ONCE", 2)
    monkeypatch.setattr(module, "NEAR_MAX", 3)


def test_timers_come_due_in_the_order_of_their_time(cells: TimerCells) -> None:
    for time in (30, 10, 20):
        cells.add(b"k", time)
    assert cells.pop_due(9) is None
    assert cells.next_due == 10
    assert [timer.time for timer in pop_all(cells, 20)] == [10, 20]
    assert (cells.next_due, pop_all(cells, 29)) == (30, [])
    assert pop_all(cells, 30) == [StoredTimer(b"k", 30, b"")]
    assert cells.next_due == MAX_TIME


def test_a_timer_that_was_set_before_anybody_looked_is_found_at_the_first_look(cells: TimerCells) -> None:
    cells.add(b"k", 10)
    assert cells.next_due <= 10
    assert cells.pop_due(10) == StoredTimer(b"k", 10, b"")


def test_the_same_timer_twice_is_one_and_another_namespace_is_another(cells: TimerCells) -> None:
    for namespace in (b"", b"w", b"", b"w"):
        cells.add(b"k", 10, namespace)
    assert pop_all(cells) == [StoredTimer(b"k", 10, b""), StoredTimer(b"k", 10, b"w")]


def test_a_removed_timer_does_not_come_due_and_may_be_set_again(cells: TimerCells) -> None:
    cells.add(b"k", 10)
    cells.remove(b"k", 10)
    cells.remove(b"k", 11)
    assert pop_all(cells) == []
    cells.add(b"k", 10)
    cells.remove(b"k", 10)
    cells.add(b"k", 10)
    assert pop_all(cells) == [StoredTimer(b"k", 10, b"")]


def test_a_timer_of_the_past_that_is_set_while_others_are_popped_comes_next(cells: TimerCells) -> None:
    cells.add(b"k", 10)
    cells.add(b"k", 20)
    assert cells.pop_due(20) == StoredTimer(b"k", 10, b"")
    cells.add(b"k", 5)
    assert cells.next_due == 5
    assert [timer.time for timer in pop_all(cells, 20)] == [5, 20]


@pytest.mark.parametrize("time", [MIN_TIME, -1, 0, 1, MAX_TIME])
def test_every_time_can_be_set(cells: TimerCells, time: int) -> None:
    cells.add(b"k", time)
    assert cells.next_due <= time
    if time > MIN_TIME:
        assert cells.pop_due(time - 1) is None
    assert cells.pop_due(time) == StoredTimer(b"k", time, b"")


@pytest.mark.parametrize("time", [MIN_TIME - 1, MAX_TIME + 1])
def test_a_time_beyond_the_ends_of_time_is_refused_and_changes_nothing(cells: TimerCells, time: int) -> None:
    with pytest.raises(OverflowError):
        cells.add(b"k", time)
    assert not cells.is_dirty()


def test_negative_times_come_before_positive_ones_also_from_the_store(tiny: None) -> None:
    state = new_state()
    times = [MAX_TIME, 256, 1, 0, -1, -256, MIN_TIME]
    for time in times:
        state.cells(EVENT).add(b"k", time)
    commit(state)
    state.write_pending()
    state.drop()
    assert [timer.time for timer in pop_all(state.cells(EVENT))] == sorted(times)


@pytest.mark.parametrize("key", [b"", b"\x00", b"\xff" * 3, b"k" * 127, b"k" * 128, b"k" * 20_000])
@pytest.mark.parametrize("namespace", [b"", b"\x00", b"\xff" * 16])
def test_keys_and_namespaces_come_back_as_they_were(key: bytes, namespace: bytes) -> None:
    state = new_state()
    state.cells(EVENT).add(key, 10, namespace)
    commit(state)
    state.drop()
    assert pop_all(state.cells(EVENT)) == [StoredTimer(key, 10, namespace)]


def test_a_key_and_its_namespace_never_look_like_another_pair(cells: TimerCells) -> None:
    pairs = [(b"", b"ab"), (b"a", b"b"), (b"ab", b""), (b"a", b""), (b"", b"")]
    for key, namespace in pairs:
        cells.add(key, 10, namespace)
    assert sorted((timer.key, timer.namespace) for timer in pop_all(cells)) == sorted(pairs)


def test_only_what_changed_is_frozen_and_a_fired_timer_leaves_a_tombstone() -> None:
    state = new_state()
    cells = state.cells(EVENT)
    assert cells.pop_due(0) is None  # from now on all is in memory
    cells.add(b"k", 10)
    cells.add(b"k", 20)
    first = dict(state.freeze())
    assert list(first.values()) == [b"\x01", b"\x01"]
    assert all(row.startswith(TIMERS_PREFIX) for row in first)
    cells.add(b"k", 20)
    assert state.freeze() == {}
    assert cells.pop_due(10) == StoredTimer(b"k", 10, b"")
    assert list(state.freeze().items()) == [(min(first), None)]


def test_the_timers_of_two_clocks_do_not_mix_with_each_other_or_with_state(tiny: None) -> None:
    state = new_state()
    event, processing = state.cells(EVENT), state.cells(PROCESSING)
    for time in range(6):
        event.add(b"e", time)
        processing.add(b"p", time)
        state.cells(COUNTS).put(b"%d" % time, time)
    rows = state.freeze()
    rows[COMMIT_KEY] = b"record"
    state.committed(rows, 1)
    state.write_pending()
    state.drop()
    assert pop_all(event) == [StoredTimer(b"e", time, b"") for time in range(6)]
    assert pop_all(processing) == [StoredTimer(b"p", time, b"") for time in range(6)]
    assert state.cells(COUNTS).get(b"3") == 3


def test_a_look_behind_the_horizon_brings_no_more_of_an_open_span_into_memory_than_fits(tiny: None) -> None:
    state = new_state()
    cells = state.cells(EVENT)
    for time in range(0, 500, 100):
        cells.add(b"stored", time)
    commit(state)
    state.write_pending()
    state.drop()
    for time in range(1, 20):
        cells.add(b"open", time)  # nobody has looked yet: behind the horizon, all between the first two rows
    found = []
    while (timer := cells.pop_due(MAX_TIME)) is not None:
        found.append(timer.time)
        assert cells.near() <= module.NEAR_MAX
        assert cells.size_bytes() <= module.NEAR_MAX * module.TIMER_BYTES
    assert found == [*range(20), 100, 200, 300, 400]


@pytest.mark.parametrize("is_committed", [False, True])
def test_a_first_look_at_many_timers_of_one_span_keeps_the_next_ones_only(
    tiny: None, *, is_committed: bool
) -> None:
    state = new_state()
    cells = state.cells(EVENT)
    for time in range(9):
        cells.add(b"k", time)
    assert cells.pop_due(0) == StoredTimer(b"k", 0, b"")
    if is_committed:
        commit(state)  # what it changed is not in memory any more for being changed
    assert cells.near() <= module.NEAR_MAX
    assert [timer.time for timer in pop_all(cells)] == list(range(1, 9))


def test_a_dropped_span_brings_back_what_fired_and_forgets_what_was_set() -> None:
    state = new_state()
    cells = state.cells(EVENT)
    cells.add(b"k", 10)
    commit(state)
    assert len(pop_all(cells)) == 1
    cells.add(b"k", 5)
    state.freeze()
    cells.add(b"k", 7)
    state.drop()
    assert cells.next_due == MIN_TIME  # nobody has looked
    assert pop_all(cells) == [StoredTimer(b"k", 10, b"")]


def test_a_timer_that_fires_in_one_span_stays_fired_in_the_next(tiny: None) -> None:
    state = new_state()
    cells = state.cells(EVENT)
    for time in range(10):
        cells.add(b"k", time)
    commit(state)
    assert [timer.time for timer in pop_all(cells, 4)] == list(range(5))
    in_flight = state.freeze()
    assert [timer.time for timer in pop_all(cells, 6)] == [5, 6]
    state.committed(in_flight, 2)
    commit(state)
    state.write_pending()
    assert [timer.time for timer in pop_all(cells)] == [7, 8, 9]


def test_a_timer_beyond_the_horizon_can_be_removed_unseen(tiny: None) -> None:
    state = new_state()
    cells = state.cells(EVENT)
    for time in range(10):
        cells.add(b"k", time)
    commit(state)
    state.drop()
    assert cells.pop_due(0) is not None
    for time in range(5, 10):
        cells.remove(b"k", time)
    assert [timer.time for timer in pop_all(cells)] == [1, 2, 3, 4]


def test_setting_and_cancelling_for_ever_does_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "NEAR_MAX", 100)
    state = new_state()
    cells = state.cells(EVENT)
    cells.add(b"last", MAX_TIME)
    assert cells.pop_due(0) is None
    for time in range(10_000):
        cells.add(b"k", time)
        cells.remove(b"k", time)
        assert len(cells._near) <= 101
        if time % 100 == 0:
            commit(state)
    assert pop_all(cells) == [StoredTimer(b"last", MAX_TIME, b"")]


def test_very_many_timers_are_not_all_in_memory(tmp_path: Path) -> None:
    state = new_state(RocksStores(tmp_path, 8 * MIB, 8 * MIB))
    cells = state.cells(EVENT)
    assert cells.pop_due(MAX_TIME) is None
    count, at_once = 120_000, 20_000
    for first in range(0, count, at_once):
        for number in range(first, first + at_once):
            cells.add(b"%d" % (number % 100), (number * 7919) % count)
            if number % 1000 == 0:
                assert cells.near() <= NEAR_MAX
        commit(state)
        state.write_pending()
    state.drop()
    previous, popped, most = MIN_TIME, 0, 0
    while (timer := cells.pop_due(count // 4)) is not None:
        assert timer.time >= previous
        previous = timer.time
        popped += 1
        most = max(most, cells.near())
    assert popped == count // 4 + 1
    assert most <= LOADED_AT_ONCE
    state.close()


# Any sequence of changes, against a plain set.
