import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamkit.errors import Misconfigured
from streamkit.model.event_time import TimeRule, WatermarkGenerator, punctuated
from streamkit.model.ids import MAX_TIME, MIN_TIME
from streamkit.progress.channels import Status
from streamkit.progress.source_clock import GeneratorFailed, SourceClock, SourceState

NOW = 1_600_000_000_000


def clock_with(rule: TimeRule, state: SourceState | None = None) -> SourceClock:
    return SourceClock(rule, state or SourceState(), NOW)


def restored(clock: SourceClock, rule: TimeRule) -> SourceClock:
    """As a restart does it: through bytes."""
    data = msgspec.msgpack.encode(clock.snapshot())
    return SourceClock(rule, msgspec.msgpack.decode(data, type=SourceState), NOW)


def see(clock: SourceClock, timestamp: int, value: object = None) -> None:
    """What the loop does with a record."""
    if clock.generator is None:
        clock.highest = max(clock.highest, timestamp)
    else:
        clock.in_hand = (None, value, timestamp)
        clock.observe_in_hand()


def test_a_partition_without_records_promises_nothing():
    assert clock_with(TimeRule()).watermark == MIN_TIME
    assert clock_with(TimeRule()).combined == (Status.ACTIVE, MIN_TIME)


@given(late_ms=st.integers(0, 1000), timestamps=st.lists(st.integers(0, 10_000), min_size=1))
def test_records_may_be_as_late_as_the_topic_says_and_not_later(late_ms, timestamps):
    clock = clock_with(TimeRule(late_ms=late_ms))
    for timestamp in timestamps:
        see(clock, timestamp)
    assert clock.watermark == max(timestamps) - late_ms - 1
    assert max(timestamps) - late_ms > clock.watermark  # as old as is allowed: still on time


@given(
    late_ms=st.integers(0, 5_000),
    watermark=st.one_of(st.integers(-10_000, 10_000), st.just(MIN_TIME + 1)),
)
def test_the_timestamp_for_a_watermark_is_the_smallest_that_brings_it(late_ms, watermark):
    rule = TimeRule(late_ms=late_ms)
    enough = clock_with(rule).timestamp_for(watermark)
    assert clock_with(rule, SourceState(highest=enough)).watermark >= watermark
    assert clock_with(rule, SourceState(highest=enough - 1)).watermark < watermark


@given(late_ms=st.integers(0, 5_000), short=st.integers(0, 5_000))
def test_a_watermark_at_the_end_of_time_is_out_of_reach_of_any_timestamp(late_ms, short):
    enough = clock_with(TimeRule(late_ms=late_ms)).timestamp_for(MAX_TIME - short)
    assert enough <= MAX_TIME
    assert enough == MAX_TIME or short > late_ms


class Counting(WatermarkGenerator):
    """A watermark at every third record, one above the greatest so far."""

    seen: int = 0
    greatest: int = 0

    def on_record(self, value, timestamp):  # noqa: ARG002
        self.seen += 1
        self.greatest = max(self.greatest, timestamp)
        return self.greatest + 1 if self.seen % 3 == 0 else None

    def on_tick(self, now_ms):
        return now_ms - 5_000 if self.seen else None


def test_a_generator_says_when_and_how_far():
    clock = clock_with(TimeRule(generator=Counting))
    watermarks = []
    for timestamp in (5, 9, 7, 20, 21, 22):
        see(clock, timestamp)
        watermarks.append(clock.watermark)
    assert watermarks == [MIN_TIME, MIN_TIME, 10, 10, 10, 23]
    assert clock.highest == 22


def test_a_generator_sees_the_clock_on_the_wall():
    clock = clock_with(TimeRule(generator=Counting))
    clock.tick(NOW)
    assert clock.watermark == MIN_TIME
    see(clock, 5)
    clock.tick(NOW)
    assert clock.watermark == NOW - 5_000
    clock.tick(NOW - 1)
    assert clock.watermark == NOW - 5_000


def test_without_a_generator_the_clock_on_the_wall_says_nothing():
    clock = clock_with(TimeRule())
    clock.tick(NOW)
    assert clock.watermark == MIN_TIME


@given(timestamps=st.lists(st.integers(0, 1000), max_size=20), at=st.integers(0, 20))
def test_a_generator_goes_on_after_a_restart_as_if_there_had_been_none(timestamps, at):
    rule = TimeRule(generator=Counting)
    steady, interrupted = clock_with(rule), clock_with(rule)
    for number, timestamp in enumerate(timestamps):
        if number == at:
            interrupted = restored(interrupted, rule)
        see(steady, timestamp)
        see(interrupted, timestamp)
        assert interrupted.watermark == steady.watermark
        assert interrupted.snapshot() == steady.snapshot()


def test_each_partition_has_a_generator_of_its_own():
    rule = TimeRule(generator=Counting)
    one, other = clock_with(rule), clock_with(rule)
    for _ in range(2):
        see(one, 5)
    see(other, 9)
    see(one, 6)
    assert (one.watermark, other.watermark) == (7, MIN_TIME)


def test_only_a_generator_knows_what_brings_a_watermark():
    assert clock_with(TimeRule(generator=Counting)).timestamp_for(1000) == MIN_TIME


def test_the_generator_sees_a_record_once():
    clock = clock_with(TimeRule(generator=punctuated(lambda _value, timestamp: timestamp)))
    clock.in_hand = (None, "mark", 7)
    assert clock.observe_in_hand()
    assert clock.in_hand is None
    clock.in_hand = (None, "mark", 7)
    assert not clock.observe_in_hand()


@given(promises=st.lists(st.one_of(st.none(), st.integers(-100, 100))))
def test_a_promise_is_never_taken_back(promises):
    clock = clock_with(TimeRule())
    for promise in promises:
        before = clock.watermark
        is_news = clock.promise(promise)
        assert clock.watermark == max(before, MIN_TIME if promise is None else promise)
        assert is_news == (clock.watermark > before)


@given(
    timestamps=st.lists(st.integers(0, 1000), min_size=1),
    late_before=st.integers(0, 500),
    late_after=st.integers(0, 500),
)
def test_a_deploy_that_waits_longer_does_not_take_back_what_was_promised(timestamps, late_before, late_after):
    clock = clock_with(TimeRule(late_ms=late_before))
    for timestamp in timestamps:
        see(clock, timestamp)
    again = restored(clock, TimeRule(late_ms=late_after))
    assert again.watermark == max(clock.watermark, max(timestamps) - late_after - 1)
    assert restored(clock, TimeRule(generator=Counting)).watermark == clock.watermark


@given(
    highest=st.integers(0, 1000),
    promise=st.integers(0, 1000),
    status=st.sampled_from(Status),
    end=st.one_of(st.none(), st.integers(0, 100)),
)
def test_a_restart_goes_on_where_the_commit_stood(highest, promise, status, end):
    rule = TimeRule(late_ms=10)
    clock = clock_with(rule)
    see(clock, highest)
    clock.promise(promise)
    clock.status, clock.end = status, end
    again = restored(clock, rule)
    assert (again.combined, again.highest, again.end) == (clock.combined, highest, end)


# What generators must not do; a person should hear of it where it happens, and not at the next restart.


@pytest.mark.parametrize("promise", [1.5, "10", True, 2**63])
def test_a_watermark_that_is_no_time_is_refused_before_it_is_committed(promise):
    clock = clock_with(TimeRule(generator=punctuated(lambda _value, _timestamp: promise)))
    clock.in_hand = (None, None, 5)
    with pytest.raises(GeneratorFailed, match="watermark"):
        clock.observe_in_hand()
    assert clock.watermark == MIN_TIME


def test_a_generator_that_cannot_read_what_another_version_committed_says_so():
    class Changed(WatermarkGenerator):
        seen: str = ""

    clock = clock_with(TimeRule(generator=Counting))
    see(clock, 5)
    with pytest.raises(Misconfigured, match='"Changed" cannot read the state') as caught:
        restored(clock, TimeRule(generator=Changed))
    assert "default" in caught.value.hint


def test_a_generator_may_get_new_fields():
    class Counting2(Counting):
        more: int = 7

    clock = clock_with(TimeRule(generator=Counting))
    see(clock, 5)
    generator = restored(clock, TimeRule(generator=Counting2)).generator
    assert isinstance(generator, Counting2)
    assert (generator.seen, generator.greatest, generator.more) == (1, 5, 7)


# Silence.


def test_a_partition_is_silent_after_as_long_as_the_topic_says():
    clock = clock_with(TimeRule(idle_ms=1000))
    assert not clock.is_silent(NOW + 999)
    assert clock.is_silent(NOW + 1000)
    clock.wake(NOW + 1000, NOW + 1000)
    assert not clock.is_silent(NOW + 1999)
    assert clock.is_silent(NOW + 2000)


def test_one_that_is_always_waited_for_is_never_silent():
    assert not clock_with(TimeRule(idle_ms=None)).is_silent(NOW + 10**9)


@pytest.mark.parametrize("status", [Status.IDLE, Status.FINISHED])
def test_one_that_is_idle_or_finished_already_is_not_found_silent(status):
    assert not clock_with(TimeRule(idle_ms=1), SourceState(status=status)).is_silent(NOW + 10**9)


def test_records_wake_an_idle_partition_and_not_a_finished_one():
    idle, finished = (
        clock_with(TimeRule(), SourceState(status=each)) for each in (Status.IDLE, Status.FINISHED)
    )
    for clock in (idle, finished):
        clock.wake(NOW, NOW)
    assert (idle.status, finished.status) == (Status.ACTIVE, Status.FINISHED)


def test_an_idle_partition_stays_idle_through_a_restart_and_keeps_its_promise():
    rule = TimeRule(idle_ms=1000)
    clock = clock_with(rule)
    see(clock, 500)
    clock.status = Status.IDLE
    again = restored(clock, rule)
    assert again.combined == (Status.IDLE, 499)
