"""Who holds a partition back: it is read exactly while nobody has a reason not to, and no reason outlives its task."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamkit.model.ids import TopicPartition
from streamkit.runtime.local import Way
from streamkit.runtime.pauses import Pause, Pauses
from streamkit.testing import Harness
from tests.runtime.pages import COUNTS, VIEWS, View, check_running_counts, counting

GATHERED_S = 0.2
LEFT, RIGHT = TopicPartition("in", 0), TopicPartition("in", 1)
PLACES = [LEFT, RIGHT, TopicPartition("hop", 0)]


class Reading:
    """A reader that only remembers what it was told, as the port says: what is forgotten is not paused any more."""

    def __init__(self) -> None:
        self.positions: dict[TopicPartition, int] = {}
        self.paused: set[TopicPartition] = set()
        self.calls: list[str] = []

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self.positions[partition] = offset

    def forget(self, partition: TopicPartition) -> None:
        self.positions.pop(partition, None)
        self.paused.discard(partition)

    def pause(self, partition: TopicPartition) -> None:
        self.calls.append(f"pause {partition}")
        if partition in self.positions:
            self.paused.add(partition)

    def resume(self, partition: TopicPartition) -> None:
        self.calls.append(f"resume {partition}")
        self.paused.discard(partition)

    @property
    def read(self) -> set[TopicPartition]:
        return self.positions.keys() - self.paused


def reading() -> tuple[Reading, Pauses]:
    reader = Reading()
    pauses = Pauses(reader)  # type: ignore[arg-type]
    for place in PLACES:
        pauses.read_from(place, 0)
    return reader, pauses


def test_a_partition_is_read_again_when_the_last_reason_is_gone() -> None:
    reader, pauses = reading()
    pauses.hold(LEFT, Pause.GATHERING)
    pauses.hold(LEFT, Pause.RESTORE)
    pauses.release(LEFT, Pause.GATHERING)
    assert LEFT not in reader.read
    pauses.release(LEFT, Pause.RESTORE)
    assert LEFT in reader.read


def test_to_release_what_one_does_not_hold_changes_nothing() -> None:
    reader, pauses = reading()
    pauses.hold(LEFT, Pause.RESTORE)
    pauses.release(LEFT, Pause.GATHERING)
    pauses.release(RIGHT, Pause.GATHERING)
    assert reader.read == set(PLACES) - {LEFT}
    assert reader.calls == [f"pause {LEFT}"]


def test_a_partition_that_is_held_stays_so_wherever_it_is_read_from() -> None:
    reader, pauses = reading()
    pauses.hold(LEFT, Pause.GATHERING)
    pauses.read_from(LEFT, 7)
    assert LEFT not in reader.read
    reader.forget(LEFT)  # its task waits for a while
    pauses.read_from(LEFT, 8)
    assert LEFT not in reader.read
    pauses.release(LEFT, Pause.GATHERING)
    assert LEFT in reader.read


def test_the_reasons_of_a_task_go_with_it() -> None:
    reader, pauses = reading()
    pauses.hold_only(set(PLACES), Pause.GATHERING)
    pauses.hold(LEFT, Pause.RESTORE)
    pauses.leave([LEFT])
    assert LEFT not in reader.positions
    pauses.read_from(LEFT, 0)  # it is ours once more
    assert reader.read == {LEFT}


def test_the_reader_hears_of_a_set_only_what_has_changed() -> None:
    reader, pauses = reading()
    pauses.hold_only({LEFT, RIGHT}, Pause.GATHERING)
    reader.calls.clear()
    for _ in range(3):
        pauses.hold_only({LEFT, RIGHT}, Pause.GATHERING)
    assert reader.calls == []
    pauses.hold_only({RIGHT}, Pause.GATHERING)
    assert reader.calls == [f"resume {LEFT}"]


places, reasons = st.sampled_from(PLACES), st.sampled_from(Pause)
steps = st.one_of(
    st.tuples(st.just("hold"), places, reasons),
    st.tuples(st.just("release"), places, reasons),
    st.tuples(st.just("hold_only"), st.sets(places), reasons),
    st.tuples(st.just("read_from"), places, st.just(5)),
    st.tuples(st.just("leave"), st.lists(places, max_size=2)),
    st.tuples(st.just("forget"), places),
)


@given(st.lists(steps, max_size=40))
def test_what_is_pointed_at_is_read_exactly_if_no_reason_holds_it(history: list[tuple[Any, ...]]) -> None:
    reader, pauses = reading()
    pointed, wanted = set(PLACES), set[tuple[TopicPartition, Pause]]()
    for name, *told in history:
        getattr(reader if name == "forget" else pauses, name)(*told)
        match name, *told:
            case "hold", place, reason:
                wanted.add((place, reason))
            case "release", place, reason:
                wanted.discard((place, reason))
            case "hold_only", named, reason:
                wanted = {each for each in wanted if each[1] is not reason} | {(at, reason) for at in named}
            case "read_from", place, _:
                pointed.add(place)
            case "leave", left:
                pointed -= set(left)
                wanted = {each for each in wanted if each[0] not in left}
            case _:
                pointed.discard(told[0])
        held = {place for place, _ in wanted}
        assert reader.read == pointed - held
        assert {place for place in PLACES if pauses.is_held(place)} == held


# In a worker.


def held_view(harness: Harness, reason: Pause = Pause.RESTORE) -> tuple[Pauses, TopicPartition]:
    """Somebody has a reason of its own not to read one partition of the source."""
    loop = harness.workers[0].loop
    assert loop is not None
    place = TopicPartition(VIEWS.name, 0)
    loop._pauses.hold(place, reason)
    return loop._pauses, place


def read_of(harness: Harness, place: TopicPartition) -> int:
    loop = harness.workers[0].loop
    assert loop is not None
    return loop.roster.owner_of[place].positions[place]


def send(harness: Harness, count: int) -> None:
    for number in range(count):
        harness.send(VIEWS, View(f"page-{number % 9}"), key=str(number))


@pytest.mark.parametrize("gathered_s", [0.0, GATHERED_S])
def test_gathering_and_its_end_read_nothing_that_others_hold(gathered_s: float) -> None:
    with Harness(counting()) as harness:
        loop = harness.workers[0].loop
        assert loop is not None
        loop.local.leave()
        pauses, place = held_view(harness)
        send(harness, 90)
        while loop.local.way is not Way.GATHERING:
            harness.advance(0.0001)
        harness.advance(gathered_s)
        assert loop.local.way is (Way.LOCAL if gathered_s else Way.GATHERING)
        loop.local.leave()
        harness.advance(1)
        assert pauses.is_held(place)
        assert read_of(harness, place) == 0
        counts = harness.read(COUNTS)
        assert 0 < len(counts) < 90
        pauses.release(place, Pause.RESTORE)
        harness.run()
        assert sum(check_running_counts(counts + harness.read(COUNTS)).values()) == 90


def test_a_task_that_leaves_and_comes_back_is_read() -> None:
    with Harness(counting(), local_shuffle=False) as harness:
        pauses, place = held_view(harness, Pause.GATHERING)  # a reason that nobody here will ever take back
        harness._do(harness.workers[0].loop._give_up())  # it has lost its place in the group, and joins again
        send(harness, 90)
        harness.run()
        assert not pauses.is_held(place)
        assert sum(check_running_counts(harness.read(COUNTS)).values()) == 90
