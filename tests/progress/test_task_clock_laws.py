"""Laws of the task clock: interruptions change nothing, every timer fires once, time never goes back."""

from hypothesis import given, settings
from hypothesis import strategies as st

from streamkit.model.ids import MAX_TIME, MIN_TIME
from streamkit.model.signal import EndOfInput, Idle, Watermark
from tests.progress.clock_rig import STEPS, Rig, Wanted

# Any timers, any progress: interruptions and restarts change nothing.

times = st.integers(0, 30)
wanted = st.tuples(st.sampled_from(STEPS), st.sampled_from([b"a", b"ab", b"b"]), times)
progress = st.lists(times, min_size=1, max_size=6)
chains = st.dictionaries(wanted, st.lists(wanted, max_size=2), max_size=6)


def acyclic(rules: dict[Wanted, list[Wanted]]) -> dict[Wanted, list[Wanted]]:
    """Timers that set timers, none of which sets itself again: only later ones, or ones of steps downstream."""
    return {
        source: [
            each for each in targets if each[2] > source[2] and STEPS.index(each[0]) >= STEPS.index(source[0])
        ]
        for source, targets in rules.items()
    }


@settings(max_examples=60, deadline=None)
@given(
    timers=st.lists(wanted, max_size=15),
    progress=progress,
    rules=chains,
    limit=st.integers(1, 4),
    restarts=st.lists(st.booleans(), min_size=20, max_size=20),
)
def test_an_interrupted_firing_gives_what_an_uninterrupted_one_gives(
    timers, progress, rules, limit, restarts
):
    steady, broken = Rig(rules=acyclic(rules)), Rig(rules=acyclic(rules))
    for rig in (steady, broken):
        for timer in timers:
            rig.set(*timer)
    count = 0
    for timestamp in [*progress, MAX_TIME]:
        steady.to(timestamp)
        broken.to(timestamp)
        assert steady.clock.advance(1_000_000)
        while not broken.clock.advance(limit):
            count += 1
            if restarts[count % len(restarts)]:
                broken = broken.restarted()
        assert broken.heard == steady.heard
        assert broken.saw == steady.saw
        assert broken.clock.snapshot() == steady.clock.snapshot()


@settings(max_examples=60, deadline=None)
@given(timers=st.lists(wanted, max_size=15), progress=progress)
def test_every_timer_fires_once_and_in_the_order_of_time_within_its_step(timers, progress):
    rig = Rig()
    for timer in timers:
        rig.set(*timer)
    for timestamp in progress:
        rig.to(timestamp)
        rig.clock.advance(1_000_000)
        assert sorted(rig.heard) == sorted(timer for timer in set(timers) if timer[2] < rig.source.highest)
    for step in STEPS:
        its = [time for name, _, time in rig.heard if name == step]
        assert its == sorted(its)


@settings(max_examples=60, deadline=None)
@given(
    statements=st.lists(
        st.tuples(st.integers(0, 1), st.one_of(times.map(Watermark), times.map(Idle), st.just(EndOfInput()))),
        max_size=15,
    ),
    restarts=st.sets(st.integers(0, 15)),
)
def test_the_time_of_a_task_never_goes_back(statements, restarts):
    rig, reached = Rig(channels=2), MIN_TIME
    for number, (channel, signal) in enumerate(statements):
        rig.channels.accept(channel, signal)
        rig.clock.advance(100)
        assert rig.clock.fired == rig.clock.watermark == rig.now("first") >= reached
        reached = rig.clock.watermark
        if number in restarts:
            rig = rig.restarted(channels=2)
            assert rig.clock.watermark == rig.now("first") == reached
