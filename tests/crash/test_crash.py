"""The truth: real processes, a real broker, real kills, judged by a client that is not ours."""

import pytest

from streamkit.testing.broker import start_broker
from streamkit.testing.broker.settings import FENCED_NOW_AND_THEN
from tests.crash.rig import PARTITIONS, rig

pytestmark = [pytest.mark.kafka, pytest.mark.crash, pytest.mark.timeout(600)]


def test_workers_killed_at_random_moments_lose_and_repeat_nothing(kafka_broker, tmp_path):
    with rig(kafka_broker.bootstrap, tmp_path, workers=2) as run:
        for _ in range(20):
            run.watch(run.random.uniform(0.2, 2.5))
            run.kill()
        run.finish()


def test_zombies_are_fenced_and_come_back(kafka_broker, tmp_path):
    with rig(kafka_broker.bootstrap, tmp_path, workers=2) as run:
        for turn in range(3):
            run.freeze(turn % 2)
            before = run.audit.total
            run.watch(9.0)  # longer than the session: the other worker owns everything by now
            assert run.audit.total > before, f"nobody took over:\n{run.log_tail()}"
            run.thaw(turn % 2)
            run.watch(2.0)
        run.finish()


def test_workers_join_and_leave_under_load(kafka_broker, tmp_path):
    with rig(kafka_broker.bootstrap, tmp_path, workers=1) as run:
        for change in (run.join, run.join, run.leave, run.join, run.leave, run.leave):
            run.watch(2.5)
            change()
        run.finish()


def test_a_deploy_and_the_way_back_under_load(kafka_broker, tmp_path):
    """Both versions are in the group for a while, and workers of both are killed meanwhile."""
    with rig(kafka_broker.bootstrap, tmp_path, workers=3) as run:
        for version in ("next_tally", "tally"):
            run.version = version
            run.watch(2.0)
            run.kill(0)
            run.watch(4.0)
            run.kill(0)  # it is of the version that comes: the others take over what they can
            run.watch(4.0)
            run.leave(1)
            run.join()
            run.watch(4.0)
            run.kill(1)
            run.watch(4.0)
        run.finish()


def test_a_source_that_grows_under_load_is_read_to_its_last_record(kafka_broker, tmp_path):
    with rig(kafka_broker.bootstrap, tmp_path, workers=2) as run:
        run.watch(2.0)
        run.grow(PARTITIONS + 3)
        run.watch(15.0)
        run.kill()
        run.finish()


def test_a_broker_killed_under_load_costs_time_and_nothing_else(tmp_path):
    with (
        start_broker(folder=tmp_path, keep_logs=True) as broker,
        rig(broker.bootstrap, tmp_path, workers=2) as run,
    ):
        for _ in range(2):
            run.watch(2.0)
            broker.kill()
            broker.restart()
            run.wait_for(run.audit.total + 500)
        run.finish()


def test_a_broker_that_is_fenced_again_and_again_costs_time_and_nothing_else(tmp_path):
    with (
        start_broker(folder=tmp_path, keep_logs=True, extra=FENCED_NOW_AND_THEN) as broker,
        rig(broker.bootstrap, tmp_path, workers=2) as run,
    ):
        # No kills: whoever dies is a member until its session ends, and the session begins anew with the coordinator.
        run.watch(8.0)
        run.finish()
