"""What a worker needs is looked at one thing after the other, and every fault is the error with which it would end."""

from pathlib import Path

from streamkit.errors import Misconfigured
from streamkit.model.finding import Finding, finding_of
from streamkit.operate.check import check_cluster, check_folder, plan_finding
from streamkit.testing import Harness
from tests.operate.test_foresee import picture
from tests.operate.test_offsets_stateless import copying
from tests.runtime.pages import VIEWS, View, counting
from tests.runtime.test_lost_state import CHANGELOG, delete, worked

ANEW = "`the command that begins it anew`"


def looked(harness: Harness) -> list[Finding]:
    """What was found, after making sure that nothing was changed by looking."""
    before = picture(harness)
    found = harness._do(check_cluster(harness._plan, harness._log, harness._settings, anew=ANEW))
    assert picture(harness) == before
    return found


def test_a_pipeline_that_ran_and_would_run_again_fits() -> None:
    with worked() as harness:
        found = looked(harness)
        assert all(each.good for each in found)
        assert found[0].what == f'topic "{VIEWS.name}"'
        assert (found[-1].what, found[-1].detail) == ("committed state and positions", "fit")


def test_lost_state_is_the_error_of_the_worker_and_commits_are_not_looked_at() -> None:
    with worked() as harness:
        delete(harness, CHANGELOG)
        found = looked(harness)
        assert [each.code for each in found if not each.good] == ["SK550"]
        assert not any(each.what == "committed state and positions" for each in found)


def test_a_pipeline_that_has_finished_is_told_how_it_begins_anew() -> None:
    with Harness(copying(until="latest"), workers=0, partitions=1) as harness:
        harness.send(VIEWS, View("home"))
        harness.scale(1)
        harness.run()
        (found,) = looked(harness)
        assert found.good
        assert found.what == f"pipeline {harness._plan.name} has finished"
        assert found.detail.endswith(ANEW)


def test_a_folder_that_does_not_exist_yet_is_as_good_as_the_one_above_it(tmp_path: Path) -> None:
    assert check_folder(tmp_path / "not" / "yet").good
    assert not (tmp_path / "not").exists()
    (tmp_path / "file").write_text("")
    assert not check_folder(tmp_path / "file" / "below").good


def test_a_plan_is_described_by_its_size() -> None:
    assert plan_finding(counting().plan()).detail == "2 stages, 1 state store"


def test_a_finding_is_shown_as_the_error_that_it_is() -> None:
    error = Misconfigured("it broke", where="here", detail="because", hint="mend it")
    assert finding_of(error).render() == error.render()
