from typing import Any

import pytest

from streamkit.task import time_passes
from streamkit.task.ingest import Intake
from streamkit.testing import Harness
from tests.progress.alarms import ORDERS, RINGS, Order, ringing


def test_timers_that_fill_a_slice_are_part_of_the_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slice in which no record is run yet has fired timers: their task must not be left out of the commit."""
    monkeypatch.setattr(time_passes, "TIMERS_AT_ONCE", 3)
    slices: list[bool] = []
    run_slice = Intake.run_slice

    def watched(intake: Intake, limit: int, failures: Any) -> Any:
        intake.task.moved = False  # as right after a commit
        verdict = run_slice(intake, limit, failures)
        slices.append(intake.task.moved)
        return verdict

    with Harness(ringing(), partitions=1) as harness:
        harness.send(ORDERS, Order(0, set=list(range(10, 30))), key="a")
        harness.run()
        monkeypatch.setattr(Intake, "run_slice", watched)
        harness.send(ORDERS, Order(100), Order(101), key="a")
        harness.run()
        assert len(harness.read(RINGS)) == 20
    assert slices
    assert all(slices)
