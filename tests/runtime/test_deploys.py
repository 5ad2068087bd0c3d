"""Two versions of a pipeline in one group: nobody dies of the other, and no state is lost without leave."""

from collections.abc import Callable

import msgspec
import pytest
from structlog.testing import capture_logs

import streamkit as sk
from streamkit.errors import IncompatiblePlan, Misconfigured
from streamkit.model.topic_shape import TopicSpec
from streamkit.runtime import declined
from streamkit.task.task import Life
from streamkit.testing import Harness
from streamkit.testing.harness import HarnessWorker
from tests.runtime.pages import COUNTS, VIEWS, Count, View, as_count, check_running_counts, counting, page_of

USERS = sk.topic("users", Count)


def user_of(view: View) -> str:
    return view.user


def with_users() -> sk.Pipeline:
    """The next version: it counts users too, in a stage of their own."""
    pipeline = sk.pipeline("pages")
    views = pipeline.read(VIEWS)
    views.key_by(page_of).count(name="views_per_page").map_keyed(as_count).write(COUNTS)
    views.key_by(user_of).count(name="views_per_user").map_keyed(as_count).write(USERS)
    return pipeline


def renamed() -> sk.Pipeline:
    """A version that would lose the counts."""
    pipeline = sk.pipeline("pages")
    pipeline.read(VIEWS).key_by(page_of).count(name="views").map_keyed(as_count).write(COUNTS)
    return pipeline


def keyed_by(key: Callable[[View], str], name: str = "views_per_page") -> sk.Pipeline:
    """The same, but the shuffle and the stage behind it are called after this function."""
    pipeline = sk.pipeline("pages")
    pipeline.read(VIEWS).key_by(key).count(name=name).map_keyed(as_count).write(COUNTS)
    return pipeline


class Last(sk.Operator[str, View, Count]):
    """Counts, and remembers who came last."""

    seen = sk.value(int, 0)
    last = sk.value(str, "")

    def on_record(self, value: View, ctx: sk.Context[str, Count]) -> None:
        self.seen.set(self.seen.get() + 1)
        self.last.set(value.user)
        ctx.emit(Count(value.page, self.seen.get()))


class Plain(sk.Operator[str, View, Count]):
    """Counts."""

    seen = sk.value(int, 0)

    def on_record(self, value: View, ctx: sk.Context[str, Count]) -> None:
        self.seen.set(self.seen.get() + 1)
        ctx.emit(Count(value.page, self.seen.get()))


def operating(operator: sk.Operator[str, View, Count]) -> sk.Pipeline:
    pipeline = sk.pipeline("pages")
    pipeline.read(VIEWS).key_by(page_of).process(operator, name="visits").write(COUNTS)
    return pipeline


def send(harness: Harness, count: int) -> None:
    for number in range(count):
        harness.send(VIEWS, View(f"page-{number % 7}", f"user-{number % 3}"), key=str(number))


def deploy(harness: Harness, pipeline: sk.Pipeline, **settings: object) -> HarnessWorker:
    """One more worker, of this version."""
    harness._plan = pipeline.plan()
    harness._settings = msgspec.structs.replace(harness._settings, **settings)
    harness.workers.append(HarnessWorker(len(harness.workers)))
    harness._start(harness.workers[-1])
    return harness.workers[-1]


def settle(harness: Harness) -> None:
    harness._do(harness._until(harness._is_settled))


def stop(harness: Harness, worker: HarnessWorker) -> None:
    worker.loop.stop()
    harness._do(worker.work)
    worker.loop = worker.work = None


def topics(harness: Harness) -> list[str]:
    return harness._do(harness._log.admin().list_topics())


def stages(worker: HarnessWorker) -> set[str]:
    return {task.stage for task in worker.loop.roster.tasks}


@pytest.fixture
def harness():
    with Harness(counting(), partitions=2) as made:
        made._do(made._log.admin().create([TopicSpec("users", 2)]))
        yield made


def counted(harness: Harness) -> int:
    return sum(check_running_counts(harness.read(COUNTS)).values())


def test_a_stage_that_only_the_new_version_knows_waits_for_its_workers(harness):
    old = harness.workers[0]
    new = deploy(harness, with_users())
    settle(harness)
    assert "user_of" in stages(new)
    assert "user_of" not in stages(old)
    send(harness, 30)
    harness.run()
    harness.crash(1)
    harness.advance(20)
    send(harness, 30)
    harness.advance(20)
    assert not old.work.done()
    # What the new one had run is left to it: the old one would have dropped what is for its new stage.
    assert old.loop.roster.declined.tasks
    harness.restart(1)
    harness.run()
    assert sum(check_running_counts(harness.read(USERS)).values()) <= 60
    assert counted(harness) == 60


def test_a_deploy_goes_through_all_workers_and_counts_every_view_once(harness):
    harness.scale(2)
    send(harness, 20)
    harness.run()
    for old in list(harness.workers):
        stop(harness, old)
        deploy(harness, with_users())
        settle(harness)
        send(harness, 20)
        harness.run()
    assert all(
        task.life is Life.RUNNING
        for worker in harness.workers[2:]
        for task in worker.loop.roster.tasks.values()
    )
    assert counted(harness) == 60


def test_going_back_is_refused_at_once_if_state_would_be_lost(harness):
    send(harness, 10)
    harness.run()
    stop(harness, harness.workers[0])
    stop(harness, deploy_and_count(harness))
    back = deploy(harness, counting())
    with pytest.raises(IncompatiblePlan) as refused:
        settle(harness)
    assert 'Stage "user_of" is gone, and with it the state of store "views_per_user".' in refused.value.detail
    assert "--allow-dropped-state" in refused.value.hint
    assert back.work.done()
    harness.workers.remove(back)
    deploy(harness, counting(), allow_dropped_state=True)
    settle(harness)
    send(harness, 10)
    harness.run()
    assert counted(harness) == 30


def test_what_is_given_up_is_told_once_by_a_worker_and_not_called_kept():
    with capture_logs() as logs, Harness(counting(), partitions=4) as harness:
        send(harness, 20)
        harness.run()
        stop(harness, harness.workers[0])
        deploy(harness, renamed(), allow_dropped_state=True)
        settle(harness)
        (told,) = [each for each in logs if each["event"] == "state is given up for good"]
        assert told["lost"] == ['store "views_per_page" of stage "page_of"']
        assert told["log_level"] == "warning"
        assert not any("keeps its state" in each["event"] for each in logs)


def test_a_change_that_keeps_all_state_is_called_so():
    with capture_logs() as logs, Harness(counting(), partitions=2) as harness:
        harness._do(harness._log.admin().create([TopicSpec("users", 2)]))
        send(harness, 20)
        harness.run()
        stop(harness, harness.workers[0])
        deploy(harness, with_users())
        settle(harness)
        assert any("keeps its state" in each["event"] for each in logs)
        assert not any("given up" in each["event"] for each in logs)


def deploy_and_count(harness: Harness) -> HarnessWorker:
    new = deploy(harness, with_users())
    settle(harness)
    send(harness, 10)
    harness.run()
    return new


def test_a_version_that_does_not_fit_ends_at_once_and_the_others_go_on(harness):
    send(harness, 10)
    harness.run()
    wrong = deploy(harness, renamed())
    with pytest.raises(IncompatiblePlan):
        settle(harness)
    assert wrong.work.done()
    harness.workers.remove(wrong)
    harness._plan = counting().plan()
    settle(harness)
    send(harness, 10)
    harness.run()
    assert counted(harness) == 20
    assert not harness.workers[0].work.done()


def test_an_old_worker_that_comes_back_in_the_middle_of_a_deploy_finds_its_place(harness):
    harness.scale(2)
    send(harness, 20)
    harness.run()
    deploy(harness, with_users())
    settle(harness)
    send(harness, 20)
    harness.run()
    harness._plan = counting().plan()
    harness.crash(1)
    harness.restart(1)
    send(harness, 20)
    harness.run()
    assert not any(worker.work.done() for worker in harness.workers)
    assert counted(harness) == 60


def test_tasks_that_nobody_can_run_are_not_waited_for_for_ever(harness, monkeypatch):
    monkeypatch.setattr(declined, "STRANDED_S", 60.0)
    send(harness, 20)
    harness.run()
    deploy(harness, with_users())
    settle(harness)
    send(harness, 20)
    harness.run()
    harness.crash(1)
    harness.advance(40)
    assert not harness.workers[0].work.done()
    harness.advance(60)
    with pytest.raises(IncompatiblePlan):
        harness.workers[0].work.result()


def test_a_store_that_was_dropped_does_not_come_back_with_what_is_left_of_it():
    with Harness(operating(Last()), partitions=2) as harness:
        send(harness, 10)
        harness.run()
        stop(harness, harness.workers[0])
        deploy(harness, operating(Plain()))
        with pytest.raises(IncompatiblePlan) as refused:
            settle(harness)
        assert 'Store "visits.last" of stage "page_of" is gone' in refused.value.detail
        harness.workers.clear()
        dropping = deploy(harness, operating(Plain()), allow_dropped_state=True)
        settle(harness)
        send(harness, 10)
        harness.run()
        stop(harness, dropping)
        plain = deploy(harness, operating(Plain()), allow_dropped_state=False)  # told once is enough
        settle(harness)
        send(harness, 10)
        harness.run()
        stop(harness, plain)
        deploy(harness, operating(Last()))
        with pytest.raises(IncompatiblePlan) as refused:
            settle(harness)
        assert "was dropped by an earlier version" in refused.value.detail
        harness.workers.clear()
        assert counted(harness) == 30


def test_another_pipeline_of_the_same_name_is_told_so(harness):
    other = sk.pipeline("pages")
    other.read(USERS).map(page_of_count).write(COUNTS)
    harness._plan = other.plan()
    with pytest.raises(Misconfigured) as refused:
        deploy(harness, other)
    assert refused.value.problem == 'another pipeline is running under the name "pages"'
    assert "views" in refused.value.detail
    harness.workers.pop()
    assert "pages.users.changelog.1" not in topics(harness)
    harness._plan = counting().plan()
    settle(harness)
    send(harness, 10)
    harness.run()
    assert counted(harness) == 10


def page_of_count(count: Count) -> Count:
    return count
