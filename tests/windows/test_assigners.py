from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamkit.errors import InvalidPipeline, StateCorrupt, UserCodeError
from streamkit.model.duration import days, hours, milliseconds, minutes, seconds
from streamkit.model.ids import MAX_TIME, MIN_TIME
from streamkit.windows import (
    Window,
    counting,
    cumulating,
    everything,
    hopping,
    session,
    sliding,
    tumbling,
)
from streamkit.windows.assigners import Aligned, Cumulating, Hopping, Tumbling
from streamkit.windows.window import EVERYTHING, bounded, decode_namespace, encode_namespace

TIMES = st.integers(MIN_TIME, MAX_TIME)


# The window itself.


@given(TIMES, TIMES, TIMES, TIMES)
def test_namespaces_come_back_and_sort_like_windows(a: int, b: int, c: int, d: int) -> None:
    one, other = Window(a, b), Window(c, d)
    assert decode_namespace(encode_namespace(one)) == one
    assert (encode_namespace(one) < encode_namespace(other)) == (one < other)
    assert len(encode_namespace(one)) == 16


def test_bytes_of_another_length_are_no_window() -> None:
    with pytest.raises(StateCorrupt, match="is no window"):
        decode_namespace(b"short")


def test_a_window_knows_its_times_in_utc() -> None:
    window = Window(-1_000, 60_000)
    assert window.max_timestamp == 59_999
    assert window.start_time == datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC)
    assert window.end_time == datetime(1970, 1, 1, 0, 1, tzinfo=UTC)


def test_the_window_of_everything_has_no_end_and_the_dates_there_are() -> None:
    assert EVERYTHING.max_timestamp == MAX_TIME
    assert EVERYTHING.start_time == datetime.min.replace(tzinfo=UTC)
    assert EVERYTHING.end_time == datetime.max.replace(tzinfo=UTC)


def test_a_window_beyond_the_end_of_time_ends_with_it() -> None:
    assert bounded(MIN_TIME - 5, MAX_TIME + 5) == EVERYTHING
    near_end = tumbling(hours(1)).windows(MAX_TIME)[0]
    assert near_end.end == near_end.max_timestamp == MAX_TIME
    assert decode_namespace(encode_namespace(near_end)) == near_end
    near_start = tumbling(hours(1)).windows(MIN_TIME)[0]
    assert near_start.start == MIN_TIME
    assert session(days(1)).window(None, MAX_TIME - 1) == Window(MAX_TIME - 1, MAX_TIME)


# Aligned windows.


@pytest.mark.parametrize(
    ("timestamp", "expected"),
    [(0, (0, 10)), (9, (0, 10)), (10, (10, 20)), (-1, (-10, 0)), (-10, (-10, 0)), (-11, (-20, -10))],
)
def test_tumbling_windows_lie_side_by_side_also_before_1970(timestamp: int, expected: Any) -> None:
    assert tumbling(milliseconds(10)).windows(timestamp) == (Window(*expected),)


def test_an_offset_shifts_windows_in_either_direction() -> None:
    assert tumbling(milliseconds(10), offset=milliseconds(3)).windows(12) == (Window(3, 13),)
    assert tumbling(milliseconds(10), offset=milliseconds(-3)).windows(12) == (Window(7, 17),)


def test_a_day_is_24_hours_of_utc_whatever_people_do_with_their_clocks() -> None:
    # In Berlin the 31st of March 2024 had 23 hours.
    noon = int(datetime(2024, 3, 31, 12, tzinfo=UTC).timestamp() * 1000)
    (window,) = tumbling(days(1)).windows(noon)
    assert window.start_time == datetime(2024, 3, 31, tzinfo=UTC)
    assert window.end_time - window.start_time == timedelta(hours=24)
    (shifted,) = tumbling(days(1), offset=hours(-1)).windows(noon)
    assert shifted.start_time == datetime(2024, 3, 30, 23, tzinfo=UTC)


def test_hopping_windows_overlap_and_come_by_their_end() -> None:
    assert hopping(milliseconds(10), milliseconds(4)).windows(9) == (
        Window(0, 10),
        Window(4, 14),
        Window(8, 18),
    )
    assert hopping(milliseconds(10), milliseconds(4)).windows(-9) == (
        Window(-16, -6),
        Window(-12, -2),
    )


def test_cumulating_windows_begin_together_and_grow() -> None:
    windows = cumulating(milliseconds(12), milliseconds(4))
    assert windows.windows(5) == (Window(0, 8), Window(0, 12))
    assert windows.windows(0) == (Window(0, 4), Window(0, 8), Window(0, 12))
    assert windows.windows(11) == (Window(0, 12),)
    assert windows.windows(-1) == (Window(-12, 0),)
    assert cumulating(milliseconds(12), milliseconds(4), offset=milliseconds(-2)).windows(0) == (
        Window(-2, 2),
        Window(-2, 6),
        Window(-2, 10),
    )


@st.composite
def aligned(draw: Any) -> Aligned:
    small, times = draw(st.integers(1, 30)), draw(st.integers(1, 6))
    offset = draw(st.integers(-small + 1, small - 1))
    kind = draw(st.sampled_from(["tumbling", "hopping", "cumulating"]))
    if kind == "tumbling":
        return Tumbling(small, offset)
    if kind == "hopping":
        return Hopping(draw(st.integers(small, 60)), small, offset)
    return Cumulating(small * times, small, offset)


@given(aligned(), st.integers(-1_000, 1_000))
def test_the_windows_of_a_record_hold_it_and_are_those_of_its_pane(assigner: Aligned, timestamp: int) -> None:
    windows = assigner.windows(timestamp)
    assert windows
    assert all(each.start <= timestamp < each.end for each in windows)
    assert list(windows) == sorted(set(windows), key=lambda each: (each.end, each.start))
    start = timestamp - (timestamp - assigner.offset) % assigner.pane
    assert assigner.windows(start) == windows == assigner.windows(start + assigner.pane - 1)


# The others.


def test_a_session_of_one_record_lasts_for_the_gap() -> None:
    assert session(seconds(1)).window("x", 5_000) == Window(5_000, 6_000)
    assert session(seconds).window(2, 0) == Window(0, 2_000)


@pytest.mark.parametrize("gap", [lambda _: 5, lambda _: seconds(0), lambda _: seconds(-1)])
def test_a_gap_that_makes_no_sense_is_the_fault_of_its_record(gap: Any) -> None:
    with pytest.raises(UserCodeError, match="the gap of a session"):
        session(gap).window("x", 0)


def test_everything_and_counting_have_one_window() -> None:
    assert everything().windows(5) == counting(3).windows(-5) == (EVERYTHING,)


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: tumbling(seconds(0)), "the size of a tumbling window is 0:00:00, and must be above zero"),
        (lambda: tumbling(5), "the size of a tumbling window is a duration, got 5"),
        (lambda: tumbling(seconds(1), offset=seconds(1)), "an offset of 1 s is as long as the windows"),
        (lambda: tumbling(seconds(1), time="wall"), 'time is "event" or "processing", got \'wall\''),
        (lambda: hopping(seconds(1), seconds(2)), "windows of 1 s that begin every 2 s would leave"),
        (lambda: hopping(seconds(1), seconds(-1)), "the slide of a hopping window is"),
        (lambda: cumulating(seconds(5), seconds(2)), "windows that grow by 2 s never reach 5 s"),
        (lambda: cumulating(seconds(5), seconds(10)), "windows that grow by 10 s never reach 5 s"),
        (lambda: session(minutes(-1)), "the gap of a session is"),
        (lambda: sliding(seconds(0)), "the difference of a sliding window is"),
        (lambda: counting(0), "the size of a counting window is a number of records, got 0"),
        (lambda: counting(5, 0), "the slide of a counting window is a number of records, got 0"),
    ],
)
def test_windows_that_make_no_sense_are_refused_with_a_hint(make: Any, problem: str) -> None:
    with pytest.raises(InvalidPipeline) as caught:
        make()
    assert caught.value.problem.startswith(problem)
    assert caught.value.hint


def test_windows_say_in_words_what_state_depends_on() -> None:
    said = [
        tumbling(minutes(1)),
        tumbling(minutes(1), offset=seconds(5), time="processing"),
        hopping(minutes(1), seconds(20)),
        cumulating(minutes(1), seconds(20)),
        session(seconds(30)),
        session(lambda value: value.gap),
        sliding(seconds(5)),
        everything(),
        counting(10),
        counting(10, 5),
    ]
    assert [each.definition for each in said] == [
        "tumbling windows of 60000 ms",
        "tumbling windows of 60000 ms from 5000 ms on of processing time",
        "hopping windows of 60000 ms every 20000 ms",
        "cumulating windows of 60000 ms by 20000 ms",
        "sessions with a gap of 30000 ms",
        "sessions with a gap from a function",
        "sliding windows over 5000 ms",
        "one window of everything",
        "windows of 10 records",
        "windows of 10 records every 5",
    ]
