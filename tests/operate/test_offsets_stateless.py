"""Positions of a pipeline that keeps no state may be set at any time, also after it has run."""

import pytest

import streamkit as sk
from streamkit.errors import Misconfigured
from streamkit.operate.offsets_gap import go_behind_gap
from streamkit.operate.offsets_plan import keeps_nothing, plan_reset, require_no_state
from streamkit.testing import Harness
from tests.runtime.pages import VIEWS, View, page_of

OUT = sk.topic("out", View)


def copying(*, until: str | None = None) -> sk.Pipeline:
    """No state; and a shuffle, whose records are none of the sources'."""
    pipeline = sk.pipeline("copy")
    read = pipeline.read(VIEWS, until=until)  # type: ignore[arg-type]
    read.key_by(page_of).write(OUT)
    return pipeline


def reset(harness: Harness, to: str) -> None:
    plan, admin = harness._plan, harness._log.admin()
    harness._do(require_no_state(plan, admin))
    planned = harness._do(plan_reset(plan, admin, to, None))
    harness._do(go_behind_gap(plan, harness._log, planned.moves))


@pytest.mark.parametrize("guarantee", ["exactly_once", "at_least_once", "at_most_once"])
def test_a_pipeline_without_state_reads_again_from_where_it_is_told(guarantee):
    with Harness(copying(), guarantee=guarantee) as harness:
        harness.send(VIEWS, View("a"), View("b"))
        harness.run()
        assert len(harness.read(OUT)) == 2
        harness.scale(0)
        reset(harness, "earliest")
        harness.scale(1)
        harness.run()
        assert sorted(each.page for each in harness.read(OUT)) == ["a", "b"]
        harness.scale(0)
        harness.send(VIEWS, View("c"))
        reset(harness, "latest")
        harness.scale(1)
        harness.send(VIEWS, View("d"))
        harness.run()
        assert [each.page for each in harness.read(OUT)] == ["d"]


def test_before_its_first_start_too():
    with Harness(copying(), workers=0) as harness:
        harness.send(VIEWS, View("a"))
        reset(harness, "latest")
        harness.scale(1)
        harness.send(VIEWS, View("b"))
        harness.run()
        assert [each.page for each in harness.read(OUT)] == ["b"]


def test_what_remembers_or_ends_keeps_something():
    assert keeps_nothing(copying().plan())
    assert not keeps_nothing(copying(until="latest").plan())
    counting = sk.pipeline("counting")
    counting.read(VIEWS).key_by(page_of).count().write(sk.topic("counts", int))
    assert not keeps_nothing(counting.plan())
    with Harness(counting) as harness:
        harness.send(VIEWS, View("a"))
        harness.run()
        with pytest.raises(Misconfigured, match="has committed state"):
            harness._do(require_no_state(harness._plan, harness._log.admin()))
