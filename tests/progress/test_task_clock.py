import pytest

from streamkit.model.ids import MAX_TIME, MIN_TIME
from streamkit.model.signal import EndOfInput, Idle, Watermark
from streamkit.progress.channels import Status
from streamkit.progress.task_clock import TimerFailed
from streamkit.state.timers import StoredTimer
from tests.progress.clock_rig import NOW, STEPS, Rig


def test_timers_fire_in_the_order_of_time_and_upstream_first():
    rig = Rig()
    for step in reversed(STEPS):
        for time in (30, 10, 20):
            rig.set(step, b"k", time)
    rig.to(26)
    assert rig.clock.advance(100)
    assert rig.heard == [(step, b"k", time) for step in STEPS for time in (10, 20)]
    assert rig.clock.fired == rig.clock.watermark == 25


def test_a_timer_fires_when_the_watermark_reaches_it_and_not_before():
    rig = Rig()
    rig.set("first", b"k", 10)
    rig.to(10)
    assert rig.clock.advance(100)
    assert rig.heard == []
    rig.to(11)
    assert rig.clock.advance(100)
    assert rig.heard == [("first", b"k", 10)]
    assert rig.clock.advance(100)
    assert len(rig.heard) == 1


def test_a_step_downstream_sees_the_old_time_while_upstream_fires():
    rig = Rig()
    rig.to(6)
    rig.clock.advance(100)
    for step in STEPS:
        rig.set(step, b"k", 10)
    rig.to(21)
    rig.clock.advance(100)
    assert rig.saw == [
        ("first", {"first": 20, "second": 5, "third": 5}),
        ("second", {"first": 20, "second": 20, "third": 5}),
        ("third", {"first": 20, "second": 20, "third": 20}),
    ]


def test_also_after_an_interruption_a_step_downstream_sees_the_old_time():
    rig = Rig()
    rig.to(6)
    rig.clock.advance(100)
    for time in (10, 11, 12):
        rig.set("first", b"k", time)
        rig.set("second", b"k", time)
    rig.to(21)
    while not rig.clock.advance(1):
        rig = rig.restarted()
    assert [saw["second"] for name, saw in rig.saw if name == "first"] == [5, 5, 5]
    assert [saw["third"] for _, saw in rig.saw] == [5] * 6


def test_between_two_advances_time_is_what_the_inputs_say():
    rig = Rig()
    assert rig.now("first") == MIN_TIME
    rig.to(8)
    assert rig.now("first") == rig.clock.current() == 7


def test_a_timer_set_while_firing_fires_in_the_same_go_if_it_is_due():
    rig = Rig(
        rules={
            ("first", b"k", 10): [("first", b"k", 15), ("second", b"k", 3), ("first", b"k", 99)],
            ("first", b"k", 15): [("first", b"k", 1)],
        }
    )
    rig.set("first", b"k", 10)
    rig.set("first", b"k", 18)
    rig.to(21)
    assert rig.clock.advance(100)
    assert rig.heard == [
        ("first", b"k", 10),
        ("first", b"k", 15),
        ("first", b"k", 1),
        ("first", b"k", 18),
        ("second", b"k", 3),
    ]
    rig.to(100)
    rig.clock.advance(100)
    assert rig.heard[-1] == ("first", b"k", 99)


def test_a_timer_of_the_past_fires_at_the_next_opportunity():
    rig = Rig()
    rig.to(50)
    rig.clock.advance(100)
    rig.set("first", b"k", 10)
    assert rig.source.limit <= rig.source.highest  # the loop looks before the next record
    rig.clock.advance(100)
    assert rig.heard == [("first", b"k", 10)]


def test_the_loop_is_told_from_which_timestamp_on_to_look():
    rig = Rig()
    rig.set("first", b"k", 100)
    rig.to(20)
    rig.clock.advance(100)
    assert rig.source.limit == 101
    rig.set("second", b"k", 60)
    assert rig.source.limit == 61
    rig.set("second", b"k", 80)
    assert rig.source.limit == 61


def test_a_timer_that_fails_is_named_and_the_rest_is_left_to_whoever_goes_back():
    rig = Rig()
    rig.set("second", b"bad", 10)
    rig.to(20)
    with pytest.raises(TimerFailed) as caught:
        rig.clock.advance(100)
    assert (caught.value.store, caught.value.timer) == ("second.event_timers", StoredTimer(b"bad", 10, b""))
    assert isinstance(caught.value.cause, ValueError)
    assert rig.clock.is_firing is False


def test_a_condemned_timer_is_set_aside_instead_of_being_fired():
    rig = Rig()
    aside = []

    def set_aside(store: str, timer: StoredTimer) -> bool:
        aside.append((store, timer.key))
        return timer.key == b"bad"

    rig.clock.on_condemned(set_aside)
    for key in (b"a", b"bad", b"z"):
        rig.set("first", key, 10)
    rig.to(20)
    assert rig.clock.advance(100)
    assert sorted(key for _, key, _ in rig.heard) == [b"a", b"z"]
    assert sorted(aside) == [("first.event_timers", key) for key in (b"a", b"bad", b"z")]


def test_processing_timers_go_by_the_wall_clock_and_not_by_event_time():
    rig = Rig()
    rig.set("first", b"k", NOW + 50, "processing_timers")
    rig.set("first", b"k", NOW + 20, "processing_timers")
    rig.to(NOW + 1000)
    assert rig.clock.advance(100)
    assert rig.clock.fire_processing(NOW + 19, 100)
    assert rig.heard == []
    assert rig.clock.fire_processing(NOW + 20, 100)
    assert rig.clock.fire_processing(NOW + 49, 100)
    assert rig.heard == [("first*", b"k", NOW + 20)]
    assert rig.clock.fire_processing(NOW + 60, 100)
    assert len(rig.heard) == 2


def test_many_processing_timers_fire_a_few_at_a_time():
    rig = Rig()
    for number in range(7):
        for step in ("second", "first"):
            rig.set(step, b"k", NOW + number, "processing_timers")
    calls = 1
    while not rig.clock.fire_processing(NOW + 10, 3):
        calls += 1
    assert calls >= 5
    assert rig.heard == [(step, b"k", NOW + number) for step in ("first*", "second*") for number in range(7)]


def test_the_end_of_all_input_fires_everything_processing_timers_included():
    rig = Rig()
    rig.set("first", b"k", MAX_TIME)
    rig.set("second", b"k", NOW + 10**9)
    rig.set("second", b"k", NOW + 10**9, "processing_timers")
    rig.to(5)
    rig.finish()
    assert rig.clock.advance(100)
    assert sorted(rig.heard) == [
        ("first", b"k", MAX_TIME),
        ("second", b"k", NOW + 10**9),
        ("second*", b"k", NOW + 10**9),
    ]
    assert rig.clock.is_finished
    assert rig.restarted().clock.fired == MAX_TIME


def test_before_the_end_has_fired_everything_a_task_is_not_finished():
    rig = Rig()
    for time in range(5):
        rig.set("third", b"k", time)
    rig.finish()
    while not rig.clock.advance(1):
        assert not rig.clock.is_finished
        rig = rig.restarted()
        rig.finish()
    assert len(rig.heard) == 5
    assert rig.clock.is_finished


def test_a_processing_timer_that_is_set_at_the_end_fires_before_the_task_is_finished():
    """An event timer of the last moment may still ask for a processing timer of the same step."""
    rig = Rig()
    event = rig.timers["second", "event_timers"]
    plain = event.fire

    def fire(key: bytes, time: int, namespace: bytes) -> None:
        plain(key, time, namespace)
        rig.set("second", b"k", NOW + 5000, "processing_timers")

    event.fire = fire
    rig.set("second", b"k", 10)
    rig.finish()
    while not rig.clock.advance(100):
        pass
    assert rig.clock.is_finished
    assert rig.heard == [("second", b"k", 10), ("second*", b"k", NOW + 5000)]


# What holds event time back.


def test_event_time_is_that_of_the_slowest_channel_and_idle_ones_are_not_waited_for():
    rig = Rig(channels=2)
    rig.set("first", b"k", 10)
    rig.channels.accept(0, Watermark(50))
    rig.clock.advance(100)
    assert (rig.heard, rig.clock.fired) == ([], MIN_TIME)
    rig.channels.accept(1, Idle(3))
    rig.clock.advance(100)
    assert (len(rig.heard), rig.clock.fired, rig.clock.status) == (1, 50, Status.ACTIVE)


def test_a_channel_that_wakes_up_holds_event_time_where_it_is():
    rig = Rig(channels=2)
    rig.channels.accept(0, Watermark(50))
    rig.channels.accept(1, Idle(3))
    rig.clock.advance(100)
    rig.channels.accept(1, Watermark(20))
    rig.channels.accept(0, Watermark(90))
    rig.clock.advance(100)
    assert (rig.clock.watermark, rig.clock.current()) == (50, 50)
    rig.channels.accept(1, Watermark(60))
    rig.clock.advance(100)
    assert rig.clock.watermark == 60


def test_a_restart_knows_what_every_channel_has_said():
    rig = Rig(channels=2)
    rig.channels.accept(0, Watermark(50))
    rig.channels.accept(1, EndOfInput())
    rig.clock.advance(100)
    rig.clock.tell()
    again = rig.restarted(channels=2)
    assert again.channels.combined == (Status.ACTIVE, 50)
    assert again.clock.announced == (Status.ACTIVE, 50)
    again.channels.accept(0, EndOfInput())
    again.clock.advance(100)
    assert again.clock.is_finished


def test_when_event_time_last_advanced_is_kept():
    rig = Rig()
    rig.to(5)
    rig.now_ms = NOW + 100
    rig.clock.advance(100)
    rig.now_ms = NOW + 200
    rig.clock.advance(100)
    assert rig.restarted().clock.advanced_at_ms == NOW + 100
