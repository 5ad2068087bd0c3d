"""A first worker over state of two versions: one answer, whatever is restored first, and whoever looks is told."""

import asyncio

import pytest
from structlog.testing import capture_logs

from streamkit.errors import IncompatiblePlan
from streamkit.operate.offsets_report import report_offsets
from streamkit.runtime.assign import Roster
from streamkit.testing import Harness
from tests.operate.test_foresee import foreseen
from tests.runtime.test_deploys import Last, Plain, deploy, operating, send, settle, stop

PARTITIONS = 4


def mixed() -> Harness:
    """An old worker, and a new one that only adds a store, have run side by side; both have stopped."""
    harness = Harness(operating(Plain()), partitions=PARTITIONS)
    old = beside(harness)
    stop(harness, old)
    harness.workers.clear()
    harness._plan = operating(Plain()).plan()
    return harness


def beside(harness: Harness):
    """Run a new version beside the old one for a while; gives the old worker, which runs on."""
    (old,) = harness.workers
    send(harness, 40)
    harness.run()
    new = deploy(harness, operating(Last()))
    settle(harness)
    send(harness, 40)
    harness.run()
    assert 0 < len(new.loop.roster.tasks) < 2 * PARTITIONS
    stop(harness, new)
    harness.workers.remove(new)
    harness.advance(10)
    return old


@pytest.mark.parametrize("slow", range(2 * PARTITIONS))
def test_a_lone_worker_of_the_old_version_is_always_refused(slow: int, monkeypatch) -> None:
    """Each task in turn is restored at once, and the others later."""
    restore = Roster._restore

    async def late(self, task, ownership):
        first = sorted(self.tasks)[slow % len(self.tasks)]
        if task.id != first:
            await asyncio.sleep(1)
        return await restore(self, task, ownership)

    with mixed() as harness:
        monkeypatch.setattr(Roster, "_restore", late)
        deploy(harness, operating(Plain()))
        with pytest.raises(IncompatiblePlan):
            settle(harness)
        harness.workers.clear()


def test_tasks_that_stand_still_are_told_while_the_old_worker_runs() -> None:
    with capture_logs() as logs, Harness(operating(Plain()), partitions=PARTITIONS) as harness:
        old = beside(harness)
        stranded = sorted(map(str, old.loop.roster.declined.tasks))
        assert stranded
        harness._plan = operating(Plain()).plan()
        told = foreseen(harness)
        assert len(told) == 1
        assert told[0].startswith("error[SK520]: no worker can run these tasks: ")
        assert all(task in told[0] for task in stranded)
        assert "--allow-dropped-state" in told[0]
        report = harness._do(report_offsets(old.loop.roster.plan, harness._log.admin()))
        assert sorted(report.stranded) == stranded
        (line,) = [each for each in logs if each["event"].startswith("no worker can run these tasks")]
        assert "--allow-dropped-state" in line["hint"]


def test_nothing_stands_still_where_the_new_version_is_at_work() -> None:
    with Harness(operating(Plain()), partitions=PARTITIONS) as harness:
        send(harness, 40)
        harness.run()
        deploy(harness, operating(Last()))
        settle(harness)
        send(harness, 40)
        harness.run()
        harness._plan = operating(Plain()).plan()
        assert foreseen(harness) == []
        assert harness._do(report_offsets(harness._plan, harness._log.admin())).stranded == []
