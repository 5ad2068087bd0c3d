import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamkit.errors import Misconfigured
from streamkit.model.signal import Barrier
from streamkit.progress.line import FORMAT_VERSION, Heard, Line, LineState, Run, decode_line, encode_line

ROUND = 4
FIRST, SECOND = Barrier(1, ROUND), Barrier(2, ROUND)
COUNTS = {"orders": 2, "views": 3}
heard = st.lists(
    st.tuples(
        st.sampled_from(sorted(COUNTS)),
        st.integers(0, 4),
        st.builds(Barrier, st.integers(1, 3), st.integers(ROUND - 1, ROUND + 1)),
    ),
    max_size=30,
)


def line_of(**counts: int) -> Line:
    return Line(counts, ROUND)


def hear_all(line: Line, shuffle: str, count: int, barrier: Barrier = FIRST) -> None:
    for channel in range(count):
        line.hear(shuffle, channel, barrier)


def restored(line: Line, counts: dict[str, int] = COUNTS) -> Line:
    """As a restart does it: through bytes."""
    return Line(counts, ROUND, decode_line(encode_line(line)))


# When the line is reached.


def test_the_line_is_reached_when_the_last_channel_of_the_last_shuffle_has_shown_it():
    line = line_of(**COUNTS)
    for shuffle, count in COUNTS.items():
        for channel in range(count):
            assert not line.has_reached(FIRST)
            assert line.hear(shuffle, channel, FIRST) is Heard.NOTED
    assert line.has_reached(FIRST)
    assert line.waits_for(FIRST) == []


def test_one_barrier_is_not_enough_for_a_partition_that_several_tasks_write():
    line = line_of(orders=2)
    line.hear("orders", 1, FIRST)
    assert not line.has_reached(FIRST)
    assert line.waits_for(FIRST) == [("orders", 0)]


def test_the_same_barrier_twice_stands_for_no_other_channel():
    line = line_of(orders=2)
    line.hear("orders", 1, FIRST)
    line.hear("orders", 1, FIRST)
    assert not line.has_reached(FIRST)


def test_a_task_without_shuffles_waits_for_nobody():
    assert line_of().has_reached(FIRST)


def test_a_barrier_of_another_cut_or_round_is_not_this_one():
    line = line_of(orders=2)
    line.hear("orders", 0, FIRST)
    line.hear("orders", 1, SECOND)
    assert not line.has_reached(FIRST)
    assert not line.has_reached(SECOND)
    line.hear("orders", 0, SECOND)
    assert line.has_reached(SECOND)
    assert not line.has_reached(Barrier(2, ROUND + 1))


def test_an_input_that_is_complete_is_paused_until_the_others_are():
    line = line_of(**COUNTS)
    hear_all(line, "orders", 1)
    assert line.complete(FIRST) == []
    hear_all(line, "orders", 2)
    assert line.complete(FIRST) == ["orders"]
    hear_all(line, "views", 3)
    assert line.complete(FIRST) == []
    assert line.has_reached(FIRST)


def test_what_comes_is_the_newest_barrier_of_the_round_that_was_not_passed():
    line = line_of(**COUNTS)
    assert line.coming is None
    line.hear("orders", 0, FIRST)
    assert line.coming == FIRST
    line.hear("views", 0, SECOND)
    assert line.coming == SECOND
    line.pass_by(2)
    assert line.coming is None
    line.hear("views", 1, Barrier(3, ROUND))
    line.enter(ROUND + 1)
    assert line.coming is None
    assert line_of().coming is None


# Rounds.


def test_a_barrier_of_an_older_round_is_dropped_and_counted():
    line = line_of(orders=1)
    assert line.hear("orders", 0, Barrier(9, ROUND - 1)) is Heard.OLD
    assert line.old == 1
    assert not line.has_reached(Barrier(9, ROUND - 1))
    assert line.snapshot().shuffles == {"orders": (Run(1, 0, 0),)}


def test_a_barrier_of_a_newer_round_says_that_we_were_left_behind_and_counts_once_we_are_there():
    line = line_of(orders=2)
    newer = Barrier(1, ROUND + 1)
    assert line.hear("orders", 0, newer) is Heard.LEFT_BEHIND
    line.enter(ROUND + 1)
    assert line.hear("orders", 1, newer) is Heard.NOTED
    assert line.has_reached(newer)


def test_what_was_heard_in_a_round_that_is_over_draws_no_line_with_what_is_heard_now():
    line = line_of(orders=2)
    line.hear("orders", 0, FIRST)
    line.enter(ROUND + 1)
    again = Barrier(1, ROUND + 1)
    line.hear("orders", 1, again)
    assert not line.has_reached(again)
    line.hear("orders", 0, again)
    assert line.has_reached(again)


# Channels.


def test_a_channel_that_is_new_is_waited_for():
    line = line_of(orders=1)
    line.hear("orders", 0, FIRST)
    line.grow("orders", 2)
    assert not line.has_reached(FIRST)
    line.hear("orders", 3, FIRST)
    assert line.waits_for(FIRST) == [("orders", 1), ("orders", 2)]


def test_a_channel_that_belongs_to_nobody_is_not_waited_for():
    line = line_of(orders=1)
    line.hear("orders", 0, FIRST)
    line.hear("orders", 7, SECOND)
    line.shrink("orders", 1)
    assert line.has_reached(FIRST)


# What is committed.


def test_what_was_passed_is_the_greatest():
    line = line_of(orders=1)
    assert line.passed == 0
    line.pass_by(3)
    line.pass_by(2)
    assert restored(line).passed == 3


def test_a_line_of_many_channels_is_small_when_all_have_shown_the_same():
    line = line_of(orders=1000)
    hear_all(line, "orders", 1000, Barrier(40_000, 300))
    assert len(encode_line(line)) < 40


def test_the_bytes_of_a_release_are_the_bytes_of_the_next():
    line = line_of(orders=3)
    hear_all(line, "orders", 2, Barrier(7, 12))
    line.pass_by(6)
    assert encode_line(line).hex() == "94010681a66f7264657273929302" + "0c07" + "9301000000"


def test_a_commit_record_without_a_line_is_of_a_release_without_cuts():
    assert decode_line(None) == LineState()


def test_more_channels_than_were_committed_are_waited_for_and_fewer_are_not_forgotten():
    line = line_of(orders=2)
    hear_all(line, "orders", 2)
    assert restored(line, {"orders": 3}).waits_for(FIRST) == [("orders", 2)]
    assert restored(line, {"orders": 1}).has_reached(FIRST)
    assert restored(line, {"orders": 1}).snapshot() == line.snapshot()


def test_a_shuffle_that_is_read_no_more_is_forgotten():
    line = line_of(orders=1, views=1)
    line.hear("orders", 0, FIRST)
    assert restored(line, {"orders": 1}).has_reached(FIRST)
    assert restored(line, {"orders": 1}).snapshot().shuffles.keys() == {"orders"}


@given(
    heard=heard, passed=st.integers(0, 3), cut=st.integers(1, 3), of_round=st.integers(ROUND - 1, ROUND + 1)
)
def test_a_line_is_read_as_it_was_written(heard, passed, cut, of_round):
    line = line_of(**COUNTS)
    for shuffle, channel, barrier in heard:
        line.hear(shuffle, channel, barrier)
    line.pass_by(passed)
    again, barrier = restored(line), Barrier(cut, of_round)
    assert again.snapshot() == line.snapshot()
    assert again.has_reached(barrier) is line.has_reached(barrier)
    assert again.complete(barrier) == line.complete(barrier)
    assert again.waits_for(barrier) == line.waits_for(barrier)


@given(heard=heard)
def test_to_hear_it_twice_changes_nothing(heard):
    once, twice = line_of(**COUNTS), line_of(**COUNTS)
    for shuffle, channel, barrier in heard:
        once.hear(shuffle, channel, barrier)
        for _ in range(2):
            twice.hear(shuffle, channel, barrier)
    assert once.snapshot().shuffles == twice.snapshot().shuffles


@given(heard=heard, order=st.randoms())
def test_in_which_order_channels_are_heard_does_not_matter(heard, order):
    """Within a channel it does: that is the order of the log."""
    straight, mixed = line_of(**COUNTS), line_of(**COUNTS)
    channels: dict[tuple[str, int], list[Barrier]] = {}
    for shuffle, channel, barrier in heard:
        straight.hear(shuffle, channel, barrier)
        channels.setdefault((shuffle, channel), []).append(barrier)
    while channels:
        shuffle, channel = order.choice(list(channels))
        mixed.hear(shuffle, channel, channels[shuffle, channel].pop(0))
        if not channels[shuffle, channel]:
            del channels[shuffle, channel]
    assert mixed.snapshot() == straight.snapshot()


@given(heard=heard, cut=st.integers(1, 3))
def test_the_line_is_reached_exactly_if_nobody_is_waited_for(heard, cut):
    line, barrier = line_of(**COUNTS), Barrier(cut, ROUND)
    for shuffle, channel, each in heard:
        line.hear(shuffle, channel, each)
    assert line.has_reached(barrier) is (not line.waits_for(barrier))
    for shuffle in line.complete(barrier):
        assert shuffle not in {waiting for waiting, _ in line.waits_for(barrier)}


def pack(*parts: object) -> bytes:
    return msgspec.msgpack.encode(parts)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc1",
        pack(),
        pack("1"),
        pack(0),
        pack(FORMAT_VERSION, -1),
        pack(FORMAT_VERSION, 1, {"orders": 3}),
        pack(FORMAT_VERSION, 1, {"orders": [[1, 2]]}),
        pack(FORMAT_VERSION, 1, {"orders": [[0, 2, 3]]}),
        pack(FORMAT_VERSION, 1, {"orders": [[10**9, 2, 3]]}),
        pack(FORMAT_VERSION, 1, {"orders": [[1, -2, 3]]}),
        pack(FORMAT_VERSION, 1, {b"\xff": []}),
        encode_line(line_of(orders=2)) + b"\x00",
    ],
)
def test_what_is_no_line_is_refused_and_says_what_to_do(data):
    with pytest.raises(Misconfigured, match="which barriers were heard") as caught:
        decode_line(data)
    assert caught.value.detail
    assert "ACLs" in caught.value.hint


def test_a_newer_format_is_refused_as_such():
    with pytest.raises(Misconfigured, match=f"format {FORMAT_VERSION + 1}") as caught:
        decode_line(pack(FORMAT_VERSION + 1, "what we cannot know"))
    assert "newer" in caught.value.hint


@given(data=st.binary(max_size=30))
def test_bytes_that_anybody_wrote_are_a_line_or_refused(data):
    try:
        state = decode_line(data)
    except Misconfigured:
        return
    assert state.version == FORMAT_VERSION
