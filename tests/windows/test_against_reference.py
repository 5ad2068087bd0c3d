"""The window operators against the model, over random streams: out of order, late, restarted, with an empty cache."""

import os
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamkit.state.keys import TIMERS_PREFIX
from tests.windows.reference import Model, Rules, SlidingModel
from tests.windows.streams import (
    Eviction,
    Happening,
    evictions,
    finish,
    happenings,
    own_gap,
    run,
    sliding_step,
    step_of,
)

# No deadline: other tests share the processor. WINDOWS_EXAMPLES makes a campaign of it.
thorough = settings(deadline=None, max_examples=int(os.environ.get("WINDOWS_EXAMPLES", "150")))

STARTS = st.sampled_from([-100, 0, 1_000])
LATENESS = st.sampled_from([0, 0, 3, 12])


@st.composite
def aligned(draw: Any) -> Rules:
    kind = draw(st.sampled_from(["tumbling", "hopping", "cumulating"]))
    small, times = draw(st.integers(1, 8)), draw(st.integers(1, 4))
    if kind == "tumbling":
        numbers: tuple[int, ...] = (draw(st.integers(1, 20)),)
        period = numbers[0]
    elif kind == "hopping":
        size = draw(st.integers(small, 20))
        numbers, period = (size, small), small
    else:
        numbers, period = (small * times, small), small * times
    offset = draw(st.integers(-period + 1, period - 1))
    return Rules(kind, numbers, offset=offset, lateness=draw(LATENESS))


@st.composite
def sessions(draw: Any) -> Rules:
    gap = draw(st.integers(1, 12))
    has_own_gap = draw(st.booleans())
    return Rules(
        "session",
        (gap,),
        lateness=draw(LATENESS),
        gap=(lambda value: value % 7 + 1) if has_own_gap else None,
    )


def merging_triggers() -> st.SearchStrategy[tuple[Any, ...]]:
    simple = st.one_of(
        st.just(("end",)),
        st.tuples(st.just("count"), st.integers(1, 4)),
        st.tuples(st.just("continuous"), st.integers(1, 9)),
    )
    return st.one_of(simple, st.just(("each",)))


def triggers() -> st.SearchStrategy[tuple[Any, ...]]:
    return st.one_of(merging_triggers(), st.tuples(st.just("delta"), st.integers(0, 4)))


def timeouts() -> st.SearchStrategy[tuple[Any, ...]]:
    inner = st.one_of(st.just(("end",)), st.tuples(st.just("count"), st.integers(1, 4)))
    return st.tuples(st.just("timeout"), st.integers(1, 12), st.booleans(), inner)


@thorough
@given(st.one_of(aligned(), sessions()), happenings(), STARTS)
def test_windows_that_fire_at_their_end(rules: Rules, stream: list[Happening], start: int) -> None:
    ran = finish(run(step_of(rules), Model(rules), stream, start=start))
    assert ran.ours() == ran.theirs()
    assert ran.task.late_records == len(ran.model.late)
    assert ran.task.rows == {}, "something is left of closed windows"


@thorough
@given(st.one_of(aligned(), sessions()), happenings(), STARTS)
def test_before_the_end_of_input_nothing_has_come_too_early(
    rules: Rules, stream: list[Happening], start: int
) -> None:
    ran = run(step_of(rules), Model(rules), stream, start=start)
    assert ran.ours() == ran.theirs()


@thorough
@given(st.one_of(aligned(), sessions()), happenings(), STARTS)
def test_each_record_is_in_a_result_or_late(rules: Rules, stream: list[Happening], start: int) -> None:
    counted = finish(run(step_of(rules), Model(rules), stream, start=start))
    sent = finish(run(step_of(rules), Model(rules), stream, start=start, hears_late=True))
    seen = {value for results in sent.ours().values() for result in results for value in result[3]}
    late = sent.late()
    assert sorted([*seen, *late]) == list(range(1, sent.sent + 1))
    assert counted.task.late_records == len(late)
    assert sent.task.late_records == 0


def agree_with_trigger(rules: Rules, trigger: tuple[Any, ...], stream: list[Happening], start: int) -> None:
    rules = replace(rules, trigger=trigger, is_purging=rules.is_purging and trigger[0] != "each")
    ran = finish(run(step_of(rules), Model(rules), stream, start=start))
    assert ran.ours() == ran.theirs()
    assert ran.task.late_records == len(ran.model.late)
    assert ran.task.rows == {}, "something is left of closed windows"


@thorough
@given(aligned(), triggers(), happenings(), STARTS)
def test_triggers(rules: Rules, trigger: tuple[Any, ...], stream: list[Happening], start: int) -> None:
    agree_with_trigger(rules, trigger, stream, start)


@thorough
@given(sessions(), merging_triggers(), happenings(), STARTS)
def test_triggers_of_sessions(
    rules: Rules, trigger: tuple[Any, ...], stream: list[Happening], start: int
) -> None:
    agree_with_trigger(rules, trigger, stream, start)


@thorough
@given(sessions(), st.integers(1, 9), happenings(), STARTS)
def test_continuous_results_of_sessions(
    rules: Rules, interval: int, stream: list[Happening], start: int
) -> None:
    agree_with_trigger(rules, ("continuous", interval), stream, start)


@thorough
@given(st.one_of(aligned(), sessions()), merging_triggers(), happenings(), STARTS)
def test_triggers_that_purge(
    rules: Rules, trigger: tuple[Any, ...], stream: list[Happening], start: int
) -> None:
    agree_with_trigger(replace(rules, is_purging=True), trigger, stream, start)


@thorough
@given(st.one_of(aligned(), sessions()), timeouts(), happenings(with_clock=True), STARTS)
def test_timeouts(rules: Rules, trigger: tuple[Any, ...], stream: list[Happening], start: int) -> None:
    rules = replace(rules, trigger=trigger)
    ran = run(step_of(rules), Model(rules), stream, start=start)
    assert ran.ours() == ran.theirs()
    finish(ran)
    assert ran.ours() == ran.theirs()
    assert ran.task.rows == {}, "something is left of closed windows"


@thorough
@given(st.one_of(aligned(), sessions()), triggers(), happenings(with_clock=True), STARTS)
def test_windows_of_processing_time(
    rules: Rules, trigger: tuple[Any, ...], stream: list[Happening], start: int
) -> None:
    if rules.kind == "session" and trigger[0] == "delta":
        trigger = ("end",)
    rules = replace(rules, trigger=trigger, is_processing=True, lateness=0)
    ran = run(step_of(rules), Model(rules), stream, start=start)
    assert ran.ours() == ran.theirs()
    assert ran.task.late_records == 0
    ran.task.pass_time(ran.task.scope.wall_ms + 100)
    ran.model.pass_time(ran.task.scope.wall_ms)  # type: ignore[union-attr]
    assert ran.ours() == ran.theirs()
    assert ran.task.rows == {}, "something is left of closed windows"


@thorough
@given(aligned(), evictions(), triggers(), happenings(), STARTS)
def test_evictors(
    rules: Rules, eviction: Eviction, trigger: tuple[Any, ...], stream: list[Happening], start: int
) -> None:
    place = {"keep_after" if eviction.is_after else "keep_before": eviction.kept}
    rules = replace(rules, trigger=trigger, **place)
    ran = finish(run(step_of(rules, eviction.evictor), Model(rules), stream, start=start))
    assert ran.ours() == ran.theirs()
    assert ran.task.rows == {}, "something is left of closed windows"


@thorough
@given(triggers(), st.booleans(), happenings(), STARTS)
def test_the_window_of_everything(
    trigger: tuple[Any, ...], is_purging: bool, stream: list[Happening], start: int
) -> None:
    rules = Rules("everything", trigger=trigger, is_purging=is_purging and trigger[0] != "each")
    ran = run(step_of(rules), Model(rules), stream, start=start)
    assert ran.ours() == ran.theirs()
    if trigger[0] in ("end", "count", "each", "delta"):
        finish(ran)
        assert ran.ours() == ran.theirs()
    assert ran.task.late_records == 0


@thorough
@given(st.integers(1, 5), st.none() | st.integers(1, 5), happenings(), STARTS)
def test_counting_windows(size: int, slide: int | None, stream: list[Happening], start: int) -> None:
    if slide is None:
        rules = Rules("counting", (size,), trigger=("count", size), is_purging=True)
    else:
        rules = Rules(
            "counting", (size, slide), trigger=("count", slide), keep_before=lambda each: each[-size:]
        )
    ran = run(step_of(rules), Model(rules), stream, start=start)
    assert ran.ours() == ran.theirs()


@thorough
@given(st.integers(1, 12), LATENESS, st.booleans(), happenings(), STARTS)
def test_sliding_windows(
    difference: int, lateness: int, is_updating: bool, stream: list[Happening], start: int
) -> None:
    step = sliding_step(difference, lateness, is_updating=is_updating)
    model = SlidingModel(difference, lateness, is_updating=is_updating)
    ran = finish(run(step, model, stream, start=start))
    assert ran.ours() == ran.theirs()
    assert ran.task.late_records == len(model.late)
    assert ran.task.rows == {}, "something is left of closed windows"
    seen = {value for results in ran.ours().values() for result in results for value in result[3]}
    assert len(seen) + len(model.late) == ran.sent


@thorough
@given(st.one_of(aligned(), sessions()), triggers(), happenings(), STARTS)
def test_restarts_leave_no_trace(
    rules: Rules, trigger: tuple[Any, ...], stream: list[Happening], start: int
) -> None:
    if rules.kind == "session" and trigger[0] == "delta":
        trigger = ("end",)
    rules = replace(rules, trigger=trigger)
    step = step_of(rules)
    troubled = run(step, Model(rules), stream, start=start)
    calm = run(step, Model(rules), stream, start=start, calm=True)
    assert troubled.task.out == calm.task.out
    # A session may have a timer more after a restart, which finds nothing to do.
    state, calm_state = (
        {key: data for key, data in ran.task.rows.items() if not key.startswith(TIMERS_PREFIX)}
        for ran in (troubled, calm)
    )
    assert state == calm_state


def test_the_model_and_the_step_mean_the_same_gap() -> None:
    assert [own_gap(value).total_seconds() * 1000 for value in range(8)] == [1, 2, 3, 4, 5, 6, 7, 1]


@pytest.mark.parametrize("calm", [True, False])
def test_the_streams_are_not_too_tame(calm: bool) -> None:
    """A stream with everything in it, so that a mistake in the tests themselves is noticed."""
    stream: list[Happening] = [
        ("record", b"a", 5),
        ("record", b"a", 8),
        ("watermark", 12),
        ("restart",),
        ("record", b"a", -4),
        ("record", b"a", -12),
        ("watermark", 20),
    ]
    rules = Rules("tumbling", (10,), lateness=5)
    ran = run(step_of(rules), Model(rules), stream, start=0, calm=calm)
    assert ran.ours()[b"a"] == [
        (b"a", 0, 10, [1, 2], 9),
        (b"a", 0, 10, [1, 2, 3], 9),
        (b"a", 0, 10, [1, 2, 3, 4], 9),
    ]
