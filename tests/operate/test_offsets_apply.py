"""A plan for positions is carried out as it says, for each kind of plan that there is."""

from streamkit.operate.offsets_apply import apply_reset
from streamkit.operate.offsets_gap import plan_gap
from streamkit.operate.offsets_plan import ResetPlan, plan_anew, plan_repair, plan_reset
from streamkit.runtime.last_commits import last_commits
from streamkit.testing import Harness
from tests.operate.test_offsets_gap import PLACE, delete_before, interrupted, views
from tests.operate.test_offsets_stateless import OUT, copying
from tests.runtime.pages import COUNTS, VIEWS, Count, View, counting


def carry_out(harness: Harness, planned: ResetPlan) -> None:
    assert not planned.executed
    done = harness._do(apply_reset(harness._plan, harness._log, planned, None))
    assert done.executed
    assert done.moves == planned.moves


def counts_after_one_more_view(harness: Harness) -> list[Count]:
    harness.scale(1)
    harness.read(COUNTS)
    views(harness, 1)
    harness.run()
    return harness.read(COUNTS)


def test_anew_drops_the_state_and_reads_from_the_place() -> None:
    with interrupted(unread=0) as harness:
        carry_out(harness, harness._do(plan_anew(harness._plan, harness._log.admin(), "latest")))
        assert harness._do(last_commits(harness._plan, harness._log)) == {}
        assert counts_after_one_more_view(harness) == [Count("home", 1)]


def test_committed_positions_are_put_back_and_the_state_stays() -> None:
    with interrupted(unread=0) as harness:
        before = harness._do(last_commits(harness._plan, harness._log))
        harness._do(harness._log.admin().reset_positions(harness._plan.name, {PLACE: 1}))
        carry_out(harness, harness._do(plan_repair(harness._plan, harness._log)))
        assert harness._do(last_commits(harness._plan, harness._log)) == before
        assert counts_after_one_more_view(harness) == [Count("home", 4)]


def test_behind_a_gap_commits_and_positions_move_together() -> None:
    with interrupted(unread=5) as harness:
        delete_before(harness, 6)
        carry_out(harness, harness._do(plan_gap(harness._plan, harness._log)))
        places = [
            record.places() for record in harness._do(last_commits(harness._plan, harness._log)).values()
        ]
        assert {PLACE: 6} in places


def test_without_state_the_commits_move_too() -> None:
    with Harness(copying()) as harness:
        harness.send(VIEWS, View("a"))
        harness.run()
        assert len(harness.read(OUT)) == 1
        harness.scale(0)
        carry_out(harness, harness._do(plan_reset(harness._plan, harness._log.admin(), "earliest", None)))
        harness.scale(1)
        harness.run()
        assert [each.page for each in harness.read(OUT)] == ["a"]


def test_positions_before_the_first_start_are_those_of_the_group() -> None:
    with Harness(counting(), workers=0, partitions=1) as harness:
        views(harness, 5)
        carry_out(harness, harness._do(plan_reset(harness._plan, harness._log.admin(), "latest", None)))
        assert counts_after_one_more_view(harness) == [Count("home", 1)]
