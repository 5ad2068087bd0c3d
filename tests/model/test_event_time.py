from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import streamkit as sk
from streamkit.errors import InvalidPipeline
from streamkit.model.duration import about, milliseconds, minutes, seconds
from streamkit.model.event_time import (
    Clock,
    TimeRule,
    WatermarkGenerator,
    as_milliseconds,
    in_date,
    ingestion_time,
    punctuated,
)


class Reading(msgspec.Struct):
    sensor: str
    at: int


@given(ms=st.integers(-(10**12), 10**13), hours=st.integers(-12, 12))
def test_a_datetime_is_the_same_moment_in_every_time_zone(ms, hours):
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)
    assert as_milliseconds(moment.astimezone(timezone(timedelta(hours=hours)))) == ms


def test_what_is_smaller_than_a_millisecond_is_cut_off_towards_the_past():
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    assert as_milliseconds(epoch + timedelta(microseconds=1999)) == 1
    assert as_milliseconds(epoch - timedelta(microseconds=1)) == -1


@pytest.mark.parametrize("time", [1.5, "2020-01-01", None, True, datetime(2020, 1, 1), b"1", [1]])  # noqa: DTZ001
def test_what_is_neither_a_whole_number_nor_a_moment_is_refused(time):
    with pytest.raises(TypeError, match=f"got (a )?{type(time).__name__}"):
        as_milliseconds(time)


def test_a_topic_without_time_goes_by_the_timestamps_of_kafka_and_waits_for_nobody_late():
    rule = sk.topic("readings", Reading).time
    assert (rule.time, rule.late_ms, rule.idle_ms, rule.generator) == (Clock.KAFKA, 0, 30_000, None)


def test_a_topic_says_where_its_time_stands_how_late_and_how_long_idle():
    rule = sk.topic("readings", Reading, time="at", late=seconds(5), idle=minutes(2)).time
    assert rule == TimeRule("at", 5_000, 120_000, None)
    assert sk.topic("readings", Reading, idle=None).time.idle_ms is None
    assert sk.topic("readings", Reading, time=ingestion_time).time.time is Clock.INGESTION


def test_instead_of_a_lateness_a_topic_may_have_a_generator():
    class Own(WatermarkGenerator):
        seen: int = 0

    rule = sk.topic("readings", Reading, late=Own).time
    assert (rule.generator, rule.late_ms) == (Own, 0)


def test_a_generator_that_says_nothing_leaves_event_time_as_it_is():
    silent = WatermarkGenerator()
    assert silent.on_record("x", 1) is None
    assert silent.on_tick(1) is None


def test_punctuated_watermarks_are_those_that_records_carry():
    make = punctuated(lambda value, timestamp: timestamp - 1 if value == "mark" else None)
    one, other = make(), make()
    assert one is not other
    assert [one.on_record("x", 5), one.on_record("mark", 7), one.on_tick(9)] == [None, 6, None]


def test_a_field_that_the_values_do_not_have_is_refused_with_those_they_have():
    with pytest.raises(InvalidPipeline, match='type "Reading" has no field "when"') as caught:
        sk.topic("readings", Reading, time="when")
    assert "at, sensor" in caught.value.hint


@dataclass
class Plain:
    at: int


@pytest.mark.parametrize(
    ("value_type", "time", "value"),
    [(Reading, "at", Reading("s", 7)), (dict, "at", {"at": 7}), (Plain, "at", Plain(7)), (str, int, "7")],
)
def test_time_is_read_from_a_field_of_any_value_or_by_a_function(value_type, time, value):
    read = sk.topic("readings", value_type, time=time).time.reader(value_type)
    assert read is not None
    assert read(value) == 7


def test_a_clock_reads_nothing_from_the_value():
    assert TimeRule(ingestion_time).reader(Reading) is None
    assert TimeRule().reader(Reading) is None


@pytest.mark.parametrize("options", [{"late": seconds(-1)}, {"idle": seconds(0)}, {"idle": seconds(-1)}])
def test_a_duration_below_zero_is_refused(options):
    with pytest.raises(InvalidPipeline, match='topic "readings" has a duration'):
        sk.topic("readings", Reading, **options)


@pytest.mark.parametrize("options", [{"late": 5}, {"idle": 5}, {"late": milliseconds(0.5)}])
def test_a_duration_needs_its_unit_and_names_its_topic(options):
    with pytest.raises(InvalidPipeline, match='of topic "readings"'):
        sk.topic("readings", Reading, **options)


def test_one_topic_cannot_have_two_times():
    pipeline = sk.pipeline("twice")
    pipeline.read(sk.topic("readings", Reading, time="at"))
    with pytest.raises(InvalidPipeline, match="declared twice with different event times"):
        pipeline.read(sk.topic("readings", Reading))


def test_a_datetime_without_a_time_zone_is_called_that():
    with pytest.raises(TypeError, match="got a datetime without a time zone"):
        as_milliseconds(datetime(2020, 1, 1))  # noqa: DTZ001


def test_a_time_and_a_length_are_shown_to_people():
    assert in_date(1_767_225_600_000) == "2026-01-01 00:00:00 UTC"
    assert "microseconds" in in_date(1_767_225_600_000_000)
    lengths = {1_999: "1999 ms", 2_500: "2 seconds", 90 * 60_000: "90 minutes", 3 * 86_400_000: "3 days"}
    assert {length: about(length) for length in lengths} == lengths
