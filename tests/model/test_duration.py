from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamkit.errors import InvalidPipeline
from streamkit.model.duration import (
    above_zero_ms,
    days,
    hours,
    in_words,
    milliseconds,
    minutes,
    seconds,
    to_ms,
)


def test_a_duration_says_its_unit():
    given_ = [milliseconds(1), seconds(1), minutes(1), hours(1), days(1)]
    assert [to_ms(each) for each in given_] == [1, 1000, 60_000, 3_600_000, 86_400_000]
    assert to_ms(seconds(0.25)) == to_ms(minutes(1 / 240)) == 250


@given(number=st.integers(-(10**12), 10**12))
def test_whole_milliseconds_are_exact(number):
    assert to_ms(milliseconds(number)) == number


@pytest.mark.parametrize("duration", [timedelta(microseconds=1), timedelta(milliseconds=1, microseconds=500)])
@pytest.mark.parametrize("sign", [1, -1])
def test_less_than_a_millisecond_is_refused_and_not_rounded(duration, sign):
    with pytest.raises(InvalidPipeline, match=r"late of it is .* no whole number of milliseconds"):
        to_ms(sign * duration, of="late of it")


@pytest.mark.parametrize("duration", [5, 5.0, "5s", None, True])
def test_a_bare_number_is_no_duration(duration):
    with pytest.raises(InvalidPipeline, match="idle is a duration, got") as caught:
        to_ms(duration, of="idle")
    assert "seconds(5)" in caught.value.hint


@pytest.mark.parametrize("duration", [seconds(0), seconds(-1)])
def test_a_length_is_above_zero(duration):
    assert above_zero_ms(milliseconds(1), of="the gap") == 1
    with pytest.raises(InvalidPipeline, match=r"the gap is .* must be above zero"):
        above_zero_ms(duration, of="the gap")


@pytest.mark.parametrize(
    ("duration", "words"),
    [
        (timedelta(seconds=10), "10 s"),
        (timedelta(minutes=90), "90 min"),
        (timedelta(hours=48), "2 d"),
        (timedelta(milliseconds=1500), "1.5 s"),
        (timedelta(milliseconds=20), "20 ms"),
        (timedelta(), "0 ms"),
    ],
)
def test_a_duration_is_told_with_its_unit(duration, words):
    assert in_words(duration) == words
