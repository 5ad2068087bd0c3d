"""Records that were deleted before they were read: the error names the way on, and on that way state and positions agree."""

import pytest

import streamkit as sk
from streamkit.errors import LogGap, Misconfigured
from streamkit.kafka.ports import MemberOptions, StageTasks
from streamkit.model.ids import TopicPartition
from streamkit.model.keys import GroupPrefixes
from streamkit.operate.offsets_gap import go_behind_gap, plan_gap
from streamkit.operate.offsets_plan import ResetPlan
from streamkit.runtime.last_commits import last_commits
from streamkit.runtime.retire import life_of
from streamkit.state.keys import PLAN_KEY, store_id
from streamkit.state.memory import MemoryStores
from streamkit.testing import Harness
from tests.runtime.pages import COUNTS, VIEWS, Count, View, counting
from tests.runtime.test_retire import held, quick_markers, slow_markers
from tests.runtime.test_tail import leave_strays

PLACE = TopicPartition("views", 0)


def views(harness: Harness, count: int) -> None:
    harness.send(VIEWS, *[View("home")] * count)


def delete_before(harness: Harness, offset: int) -> None:
    """What retention does, or DeleteRecords."""
    harness._broker.topics.partition(PLACE).start_offset = offset


def planned(harness: Harness) -> ResetPlan:
    return harness._do(plan_gap(harness._plan, harness._log))


def interrupted(unread: int) -> Harness:
    """A pipeline that has counted three views and is down while others come."""
    harness = Harness(counting(), partitions=1)
    views(harness, 3)
    harness.run()
    assert harness.read(COUNTS) == [Count("home", n) for n in (1, 2, 3)]
    harness.scale(0)
    views(harness, unread)
    return harness


def start(harness: Harness) -> None:
    harness.scale(1)
    harness.run()


def test_a_gap_stops_the_worker_and_names_a_command_that_does_not_refuse() -> None:
    with interrupted(unread=5) as harness:
        delete_before(harness, 6)
        with pytest.raises(LogGap) as raised:
            start(harness)
        assert "offsets reset <pipeline> --accept-gap" in raised.value.hint


def test_state_and_positions_go_on_together_behind_a_gap() -> None:
    with interrupted(unread=5) as harness:
        delete_before(harness, 6)
        plan = planned(harness)
        (move,) = plan.moves
        assert (move.topic, move.partition) == PLACE
        assert (move.before, move.after, move.lost_records) == (3, 6, 3)
        before = harness._do(last_commits(harness._plan, harness._log))
        harness._do(go_behind_gap(harness._plan, harness._log, plan.moves))
        after = harness._do(last_commits(harness._plan, harness._log))
        positions = harness._do(harness._log.admin().positions("pages", [PLACE], timeout_s=1.0))
        (moved,) = [task for task in after if after[task] != before[task]]
        assert after[moved].places() == {PLACE: 6} == positions
        assert positions[PLACE].note == str(after[moved].span) == str(before[moved].span + 1)
        assert after[moved].birth == before[moved].birth
        harness.scale(1)
        harness.run()
        assert harness.read(COUNTS) == [Count("home", 4), Count("home", 5)]
        harness.crash(0)
        harness.restart(0)
        views(harness, 1)
        harness.run()
        assert harness.read(COUNTS) == [Count("home", 6)]


def test_a_log_that_is_shorter_than_what_was_read_goes_on_at_its_end() -> None:
    with interrupted(unread=0) as harness:
        stored = harness._broker.topics.partition(PLACE)
        stored.end_offset, stored.batches = 1, stored.batches[:1]
        stored._bases = stored._bases[:1]
        plan = planned(harness)
        assert [(move.before, move.after, move.lost_records) for move in plan.moves] == [(3, 1, 0)]
        harness._do(go_behind_gap(harness._plan, harness._log, plan.moves))
        harness.scale(1)
        views(harness, 1)
        harness.run()
        assert harness.read(COUNTS) == [Count("home", 4)]


def test_positions_that_were_set_before_the_first_start_move_too() -> None:
    with Harness(counting(), workers=0, partitions=1) as harness:
        views(harness, 5)
        harness._do(harness._log.admin().reset_positions("pages", {PLACE: 1}))
        delete_before(harness, 4)
        harness._do(go_behind_gap(harness._plan, harness._log, planned(harness).moves))
        harness.scale(1)
        harness.run()
        assert harness.read(COUNTS) == [Count("home", 1)]


def gap_writers(harness: Harness) -> set[str]:
    """The transactional ids under which gaps were accepted; without the notes that others make of them."""
    known = harness._broker.transactions.known("pages.accept-gap")
    return {each for each in known if not each.endswith((".committed", ".fenced"))}


def test_every_gap_is_accepted_under_a_writer_id_of_its_own_which_the_next_worker_retires() -> None:
    with interrupted(unread=5) as harness:
        delete_before(harness, 6)
        harness._do(go_behind_gap(harness._plan, harness._log, planned(harness).moves))
        (first,) = gap_writers(harness)
        start(harness)
        harness.scale(0)
        harness.read(COUNTS)
        views(harness, 5)
        delete_before(harness, 10)
        slow_markers(harness)
        harness._do(go_behind_gap(harness._plan, harness._log, planned(harness).moves))
        (second,) = gap_writers(harness) - {first}
        assert len({first, second, life_of(first), life_of(second)}) == 4
        assert all(each.startswith("pages.accept-gap.") for each in (first, second))
        quick_markers(harness)
        assert harness._broker.transactions.restart(lambda *_: True)
        assert held(harness)  # the broker forgot to end it
        start(harness)
        assert held(harness) == []
        assert harness.read(COUNTS) == [Count("home", 6), Count("home", 7), Count("home", 8)]


def test_without_a_gap_there_is_nothing_to_accept() -> None:
    with interrupted(unread=2) as harness, pytest.raises(Misconfigured, match="there is no gap"):
        planned(harness)


def test_a_worker_that_starts_meanwhile_is_not_overtaken() -> None:
    with interrupted(unread=5) as harness:
        delete_before(harness, 6)
        moves = planned(harness).moves
        stages = tuple(StageTasks(stage.name, 1) for stage in harness._plan.stages)
        other = harness._log.membership(MemberOptions("pages", "pages.other", stages))
        harness._do(other.join([]))
        joined = harness._loop.create_task(other.wait_rejoin())
        joined.add_done_callback(lambda _: harness._loop.create_task(other.join([])))
        with pytest.raises(Misconfigured, match="has started meanwhile"):
            harness._do(go_behind_gap(harness._plan, harness._log, moves))
        assert planned(harness).moves == moves


def by_user() -> sk.Pipeline:
    """State beside the source itself, so that the gap and the stray rows are of one task."""
    pipeline = sk.pipeline("pages")
    pipeline.read_keyed(VIEWS).count(name="n").map_keyed(lambda _, count: Count("any", count)).write(COUNTS)
    return pipeline


def count_of(key: bytes) -> bytes:
    return GroupPrefixes()[key] + store_id("n") + key


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once"])
def test_rows_without_their_commit_record_stay_out_of_state_behind_a_gap(guarantee: str) -> None:
    with Harness(by_user(), partitions=1, guarantee=guarantee) as harness:
        harness.send(VIEWS, *[View("home")] * 3, key="ann")
        harness.run()
        harness.crash()
        assert leave_strays(harness, count_of(b"bob"), PLAN_KEY) == 3
        harness.send(VIEWS, *[View("home")] * 4, key="ann")
        delete_before(harness, 5)
        harness._do(go_behind_gap(harness._plan, harness._log, planned(harness).moves))
        harness.workers[0].stores = MemoryStores()  # another host: all that it knows is the changelog
        harness.read(COUNTS)
        harness.restart()
        harness.send(VIEWS, View("home"), key="bob")
        harness.run()
        assert [count.views for count in harness.read(COUNTS)] == [4, 5, 1]
