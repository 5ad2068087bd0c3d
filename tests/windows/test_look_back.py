"""Sliding windows, as in Kafka Streams; random streams are in test_against_reference.py."""

from typing import Any

import pytest

from streamkit.errors import UserCodeError
from streamkit.model.ids import MAX_TIME
from tests.windows.scope import Task
from tests.windows.streams import sliding_step


def task(difference: int = 10, lateness: int = 0, *, is_updating: bool = False) -> Task:
    return Task(sliding_step(difference, lateness, is_updating=is_updating))


def results(task: Task) -> list[tuple[int, int, Any]]:
    """First and last millisecond of each window that fired since the last call, and its values."""
    taken = [(window.start, window.max_timestamp, values) for _, (_, window, values), _ in task.out]
    task.out.clear()
    return taken


def test_the_windows_of_the_kafka_streams_manual() -> None:
    """Records at 8000, 9200 and 12400 ms with a difference of 5000, from the documentation of SlidingWindows."""
    each = task(5_000)
    for value, time in ((1, 8_000), (2, 9_200), (3, 12_400)):
        each.push(b"A", value, time)
    each.advance(MAX_TIME)
    assert results(each) == [
        (3_000, 8_000, [1]),
        (4_200, 9_200, [1, 2]),
        (7_400, 12_400, [1, 2, 3]),
        (8_001, 13_001, [2, 3]),
        (9_201, 14_201, [3]),
    ]
    assert each.rows == {}


def test_a_window_closes_when_the_watermark_reaches_its_last_millisecond() -> None:
    each = task()
    each.push(b"a", 1, 5)
    each.advance(4)
    assert results(each) == []
    each.advance(5)
    assert results(each) == [(-5, 5, [1])]


def test_both_ends_belong_to_the_window() -> None:
    each = task()
    each.push(b"a", 1, 0)
    each.push(b"a", 2, 10)
    each.push(b"a", 3, 21)
    each.advance(MAX_TIME)
    assert results(each) == [
        (-10, 0, [1]),
        (0, 10, [1, 2]),
        (1, 11, [2]),
        (11, 21, [3]),
    ]


def test_records_of_one_time_share_their_windows() -> None:
    each = task()
    for value in (1, 2, 3):
        each.push(b"a", value, 5)
    each.advance(MAX_TIME)
    assert results(each) == [(-5, 5, [1, 2, 3])]


def test_a_record_out_of_order_changes_the_windows_that_are_open() -> None:
    each = task(lateness=30)
    each.push(b"a", 1, 20)
    each.advance(22)
    assert results(each) == [(10, 20, [1])]
    each.push(b"a", 2, 15)
    assert results(each) == [(5, 15, [2]), (10, 20, [2, 1])]
    each.advance(26)
    assert results(each) == [(16, 26, [1])]
    each.push(b"a", 3, 12)
    assert results(each) == [(2, 12, [3]), (5, 15, [3, 2]), (10, 20, [3, 2, 1]), (13, 23, [2, 1])]


def test_a_record_counts_in_the_windows_that_are_still_open_and_is_late_if_none_is() -> None:
    each = task()
    each.push(b"a", 1, 20)
    each.advance(19)
    each.push(b"a", 2, 15)  # its own window is closed, the one of the record at 20 is not
    each.push(b"b", 3, 15)
    assert each.late_records == 1
    each.advance(20)
    assert results(each) == [(10, 20, [2, 1])]


def test_updates_send_every_window_that_a_record_changes_or_makes() -> None:
    each = task(is_updating=True)
    each.push(b"a", 1, 20)
    assert results(each) == [(10, 20, [1])]
    each.push(b"a", 2, 25)
    assert results(each) == [(15, 25, [1, 2]), (21, 31, [2])]
    each.push(b"a", 3, 15)  # makes a window that begins behind it, at 16
    assert results(each) == [(5, 15, [3]), (10, 20, [3, 1]), (15, 25, [3, 1, 2]), (16, 26, [1, 2])]
    each.advance(MAX_TIME)
    assert results(each) == []
    assert each.rows == {}


def test_records_stay_only_as_long_as_a_window_may_need_them() -> None:
    each = task(lateness=5)
    each.push(b"a", 1, 0)
    each.advance(15)
    assert each.rows
    each.advance(16)
    assert each.rows == {}


def test_the_end_of_time_is_not_too_far() -> None:
    each = task(lateness=1_000)
    each.push(b"a", 1, MAX_TIME - 3)
    each.advance(MAX_TIME)
    assert results(each)[0][2] == [1]


def test_a_record_without_a_key_is_refused() -> None:
    with pytest.raises(UserCodeError, match="a record without a key"):
        task().push(None, 1, 1)


def test_sliding_windows_keep_the_records_of_each_key_in_one_place() -> None:
    step = sliding_step(10, 0, is_updating=False)
    assert [(store.name, store.kind) for store in step.stores] == [
        ("w", "value"),
        ("w.event_timers", "event_timers"),
    ]
