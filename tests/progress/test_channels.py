from hypothesis import given
from hypothesis import strategies as st

from streamkit.model.ids import MAX_TIME, MIN_TIME
from streamkit.model.signal import EndOfInput, Idle, Signal, Watermark
from streamkit.progress.channels import Channels, Status, combine

ACTIVE, IDLE, FINISHED = Status.ACTIVE, Status.IDLE, Status.FINISHED

times = st.one_of(st.integers(0, 12), st.sampled_from([MIN_TIME, -1, MAX_TIME - 1]))
signals: st.SearchStrategy[Signal] = st.one_of(times.map(Watermark), times.map(Idle), st.just(EndOfInput()))
statements = st.lists(st.tuples(st.integers(0, 3), signals), max_size=40)
parts = st.lists(st.tuples(st.sampled_from(Status), times), min_size=1, max_size=6)


def test_event_time_is_the_least_of_those_that_are_active():
    assert combine([(ACTIVE, 7), (ACTIVE, 5), (ACTIVE, 9)]) == (ACTIVE, 5)


def test_an_idle_channel_holds_nobody_back():
    assert combine([(ACTIVE, 7), (IDLE, 5)]) == (ACTIVE, 7)


def test_if_all_are_idle_event_time_is_the_greatest_that_was_promised():
    assert combine([(IDLE, 7), (IDLE, 5)]) == (IDLE, 7)


def test_a_finished_channel_holds_nobody_back_and_moves_nobody():
    assert combine([(ACTIVE, 7), (FINISHED, MAX_TIME)]) == (ACTIVE, 7)
    assert combine([(IDLE, 7), (FINISHED, MAX_TIME)]) == (IDLE, 7)


def test_the_end_of_time_comes_when_all_have_finished():
    assert combine([(FINISHED, MAX_TIME), (FINISHED, MAX_TIME)]) == (FINISHED, MAX_TIME)


def test_a_channel_that_has_said_nothing_holds_event_time_at_its_beginning():
    channels = Channels(2)
    channels.accept(0, Watermark(7))
    assert channels.combined == (ACTIVE, MIN_TIME)


def test_a_channel_that_wakes_up_does_not_take_its_promise_back():
    channels = Channels(1)
    channels.accept(0, Watermark(7))
    channels.accept(0, Idle(5))
    assert channels.combined == (IDLE, 7)
    channels.accept(0, Watermark(3))
    assert channels.combined == (ACTIVE, 7)


def test_nothing_follows_the_end_of_a_channel():
    """At least once, a worker that crashed right after its last commit sends its last signals again."""
    channels = Channels(2)
    channels.accept(0, EndOfInput())
    channels.accept(0, Watermark(3))
    channels.accept(1, Idle(7))
    assert channels.combined == (IDLE, 7)


@given(parts=parts)
def test_the_status_is_that_of_the_most_alive(parts):
    assert combine(parts)[0] is min(status for status, _ in parts)


@given(parts=parts)
def test_event_time_is_one_that_somebody_promised_or_the_end(parts):
    status, time = combine(parts)
    assert (status is FINISHED and time == MAX_TIME) or (status, time) in parts


@given(parts=parts, order=st.randoms())
def test_the_order_of_channels_does_not_matter(parts, order):
    shuffled = list(parts)
    order.shuffle(shuffled)
    assert combine(shuffled) == combine(parts)


@given(parts=parts, split=st.integers(0, 6))
def test_channels_may_be_combined_in_groups(parts, split):
    """Several shuffles of one task: each is combined by itself, then all together."""
    groups = [group for group in (parts[:split], parts[split:]) if group]
    assert combine(combine(group) for group in groups) == combine(parts)


@given(statements=statements)
def test_what_is_remembered_of_the_least_is_what_a_fresh_look_gives(statements):
    channels = Channels(4)
    for channel, signal in statements:
        channels.accept(channel, signal)
        assert channels.combined == combine(zip(channels.statuses, channels.watermarks, strict=True))


@given(statements=statements, asked=st.sets(st.integers(0, 40)))
def test_it_does_not_matter_when_one_looks(statements, asked):
    channels, looked_at = Channels(4), Channels(4)
    for number, (channel, signal) in enumerate(statements):
        channels.accept(channel, signal)
        looked_at.accept(channel, signal)
        if number in asked:
            assert looked_at.combined is looked_at.combined
    assert channels.combined == looked_at.combined


@given(statements=statements)
def test_saying_it_twice_changes_nothing(statements):
    once, twice = Channels(4), Channels(4)
    for channel, signal in statements:
        once.accept(channel, signal)
        twice.accept(channel, signal)
        twice.accept(channel, signal)
        assert (once.watermarks, once.statuses, once.combined) == (
            twice.watermarks,
            twice.statuses,
            twice.combined,
        )


@given(statements=statements)
def test_no_channel_goes_back(statements):
    channels = Channels(4)
    for channel, signal in statements:
        before = list(channels.watermarks)
        channels.accept(channel, signal)
        assert all(now >= then for now, then in zip(channels.watermarks, before, strict=True))


@given(statements=statements)
def test_while_nobody_sleeps_or_wakes_event_time_never_goes_back(statements):
    channels, reached = Channels(4), MIN_TIME
    for channel, signal in statements:
        if not isinstance(signal, Idle):
            channels.accept(channel, signal)
            assert channels.combined[1] >= reached
            reached = channels.combined[1]


@given(statements=statements)
def test_the_end_of_time_needs_every_channel_to_have_ended(statements):
    channels = Channels(4)
    ended = set()
    for channel, signal in statements:
        channels.accept(channel, signal)
        if isinstance(signal, EndOfInput):
            ended.add(channel)
        if len(ended) < 4:
            assert channels.combined[1] < MAX_TIME
            assert channels.combined[0] is not FINISHED
