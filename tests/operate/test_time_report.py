"""Event time is explained from what was committed, by somebody who runs no task."""

from streamkit.operate.time_report import report_time
from streamkit.testing import Harness
from tests.progress.alarms import ORDERS, Order, ringing


def test_the_commits_say_what_the_workers_say() -> None:
    with Harness(ringing(shuffles=1), partitions=2) as harness:
        harness.send(ORDERS, Order(0, set=[10]), Order(20), key="a")
        harness.run()
        harness.advance(1)
        report = harness._do(report_time(harness._plan, harness._log, harness._now_ms()))
        assert report.pipeline == harness._plan.name
        assert report.tasks == harness.watermarks()
        assert {each.stage for each in report.tasks} == {stage.name for stage in harness._plan.stages}


def test_before_the_first_commit_there_are_no_tasks() -> None:
    with Harness(ringing(), workers=0) as harness:
        assert harness._do(report_time(harness._plan, harness._log, 0)).tasks == []
