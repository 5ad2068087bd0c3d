"""A start that is refused leaves nothing behind."""

import pytest

from streamkit.errors import IncompatiblePlan
from streamkit.testing import Harness
from tests.operate.test_foresee import USERS, foreseen
from tests.runtime.pages import COUNTS, counting
from tests.runtime.test_deploys import deploy, keyed_by, send, settle, stop, topics, user_of, with_users


@pytest.mark.parametrize("is_at_work", [True, False])
def test_a_version_that_would_lose_state_is_refused_before_its_topics_are_made(is_at_work: bool) -> None:
    with Harness(counting(), partitions=2) as harness:
        send(harness, 20)
        harness.run()
        if not is_at_work:
            stop(harness, harness.workers[0])
            harness.workers.pop()
        before = topics(harness)
        harness._plan = keyed_by(user_of).plan()
        (told,) = foreseen(harness)
        with pytest.raises(IncompatiblePlan) as refused:
            deploy(harness, keyed_by(user_of))
        assert refused.value.render() == told
        harness.workers.pop()
        assert topics(harness) == before
        deploy(harness, keyed_by(user_of), allow_dropped_state=True)
        assert set(topics(harness)) > set(before)


def test_a_version_that_only_adds_may_make_its_topics_beside_the_old_one() -> None:
    with Harness(counting(), partitions=2, workers=2) as harness:
        harness._do(harness._log.admin().create([USERS]))
        send(harness, 20)
        harness.run()
        deploy(harness, with_users())
        settle(harness)
        assert "pages.user_of.shuffle.1" in topics(harness)
        send(harness, 20)
        harness.run()
        assert len(harness.read(COUNTS)) == 40


def test_a_worker_of_the_version_that_runs_is_not_refused_for_what_it_would_only_leave() -> None:
    """Its dead letters have lost their topic, and a newer version has run some of its tasks."""
    with Harness(counting(), partitions=2) as harness:
        harness._do(harness._log.admin().create([USERS]))
        send(harness, 20)
        harness.run()
        deploy(harness, with_users())
        settle(harness)
        send(harness, 20)
        harness.run()
        harness._do(harness._log.admin().delete([harness._plan.dead_letter_topic]))
        deploy(harness, counting())
        settle(harness)
        assert harness._plan.dead_letter_topic in topics(harness)
