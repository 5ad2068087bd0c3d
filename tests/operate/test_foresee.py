"""What a worker would refuse is foreseen, word for word, by somebody who changes nothing."""

from collections.abc import Callable

import msgspec
import pytest
from structlog.testing import capture_logs

import streamkit as sk
from streamkit.errors import Misconfigured
from streamkit.model.ids import Position, TopicPartition
from streamkit.model.topic_shape import TopicSpec
from streamkit.operate.foresee import foresee
from streamkit.runtime.prepare import inspect
from streamkit.state.keys import COMMIT_KEY
from streamkit.testing import Harness
from streamkit.windows import tumbling
from tests.runtime.pages import COUNTS, VIEWS, Count, View, counting
from tests.runtime.test_deploys import (
    Last,
    Plain,
    deploy,
    operating,
    page_of_count,
    renamed,
    send,
    settle,
    stop,
    with_users,
)
from tests.runtime.test_lost_state import SHUFFLE, create_anew, delete, worked
from tests.runtime.test_trust import write

USERS = TopicSpec("users", 2)


def foreseen(harness: Harness) -> list[str]:
    """What `streamkit check` would show, after making sure that it changed nothing."""
    before = picture(harness)
    errors = harness._do(look(harness))
    assert picture(harness) == before
    return [error.render() for error in errors]


async def look(harness: Harness) -> list[Misconfigured]:
    prepared = await inspect(harness._plan, harness._log.admin(), harness._settings)
    assert prepared.is_good
    return await foresee(prepared, harness._log, harness._settings)


def picture(harness: Harness) -> object:
    """What the cluster holds: topics with their ends, and the group with its generation and positions."""
    group = harness._broker.groups.group(harness._plan.name)
    topics = harness._do(harness._log.admin().list_topics())
    ends = {
        name: [each.end_offset for each in harness._broker.topics.topic(name).partitions] for name in topics
    }
    return ends, group.generation, sorted(group.members), dict(group.positions)


def refused(harness: Harness) -> str:
    """What a worker says that starts now."""
    with pytest.raises(Misconfigured) as error:
        harness.restart()
    harness._kill(harness.workers[0])
    return error.value.render()


def move_back(harness: Harness) -> None:
    group = harness._broker.groups.group("pages")
    group.positions[TopicPartition("views", 0)] = Position(1, "1")


def lose_commits(harness: Harness) -> None:
    """The records of the changelog go, others come: there is something in it, and no commit record."""
    create_anew(harness, "pages.page_of.changelog.1")
    for number in range(2):
        write(harness, TopicPartition("pages.page_of.changelog.1", number), b"\0\0\0\0x", b"x")


def forge(harness: Harness) -> None:
    write(harness, TopicPartition("pages.page_of.changelog.1", 0), COMMIT_KEY, b"garbage")


@pytest.mark.parametrize(
    ("lose", "code"),
    [
        (move_back, "SK530"),
        (lose_commits, "SK550"),
        (lambda harness: create_anew(harness, SHUFFLE), "SK540"),
        (lambda harness: delete(harness, SHUFFLE), "SK540"),
        (forge, "SK500"),
    ],
)
def test_what_was_lost_is_foreseen(lose: Callable[[Harness], None], code: str) -> None:
    with worked() as harness:
        harness.advance(20)  # nobody keeps the dead worker in the group any more
        assert foreseen(harness) == []
        lose(harness)
        told = foreseen(harness)
        assert told[0].startswith(f"error[{code}]")
        assert refused(harness) in told


def test_records_that_were_deleted_unread_are_foreseen() -> None:
    with worked() as harness:
        harness.advance(20)
        for number in range(40):
            harness.send(VIEWS, View("home"), key=str(number))
        for partition in harness._broker.topics.topic("views").partitions:
            partition.start_offset = partition.end_offset
        told = foreseen(harness)
        assert all(each.startswith("error[SK540]: position ") for each in told)
        assert refused(harness).startswith("error[SK540]")


def test_a_version_that_would_lose_state_is_foreseen_also_while_the_others_run() -> None:
    with capture_logs() as logs, Harness(counting(), partitions=2) as harness:
        send(harness, 30)
        harness.run()
        harness._plan = renamed().plan()
        (told,) = foreseen(harness)  # beside a worker that runs
        stop(harness, harness.workers[0])
        assert foreseen(harness) == [told]
        assert refused(harness) == told
        harness._settings = msgspec.structs.replace(harness._settings, allow_dropped_state=True)
        assert foreseen(harness) == []
        (warned,) = [each for each in logs if each["event"] == "state would be given up for good"]
        assert warned["lost"] == ['store "views_per_page" of stage "page_of"']
        harness.restart()
        harness.run()
        assert foreseen(harness) == []


def test_a_store_that_comes_back_is_foreseen() -> None:
    with Harness(operating(Last()), partitions=2) as harness:
        send(harness, 10)
        harness.run()
        stop(harness, harness.workers[0])
        dropping = deploy(harness, operating(Plain()), allow_dropped_state=True)
        settle(harness)
        send(harness, 10)
        harness.run()
        stop(harness, dropping)
        harness._plan = operating(Last()).plan()
        told = foreseen(harness)
        assert ["was dropped by an earlier version" in each for each in told] == [True]
        assert refused(harness) == told[0]


def test_a_worker_of_a_version_that_runs_would_decline_and_not_end() -> None:
    with Harness(counting(), partitions=2) as harness:
        harness._do(harness._log.admin().create([USERS]))
        send(harness, 10)
        harness.run()
        deploy(harness, with_users())
        settle(harness)
        send(harness, 10)
        harness.run()
        harness._plan = counting().plan()
        assert foreseen(harness) == []  # the first worker is of this version, and at work
        stop(harness, harness.workers[0])
        send(harness, 10)
        harness.run()
        assert len(foreseen(harness)) == 1


def test_another_pipeline_of_the_same_name_is_foreseen() -> None:
    with Harness(counting(), partitions=2) as harness:
        harness._do(harness._log.admin().create([USERS]))
        harness.run()
        other = sk.pipeline("pages")
        other.read(sk.topic("users", Count)).map(page_of_count).write(COUNTS)
        harness._plan = other.plan()
        (told,) = foreseen(harness)
        with pytest.raises(Misconfigured) as error:
            deploy(harness, other)
        assert error.value.render() == told
        harness.workers.pop()


def test_a_source_that_was_bounded_and_finished_is_foreseen() -> None:
    def reading(until: str | None) -> sk.Pipeline:
        pipeline = sk.pipeline("pages")
        views = pipeline.read(VIEWS, until=until).key_by(lambda view: view.page)
        views.window(tumbling(sk.minutes(1))).count(name="per_page").write(sk.topic("counts", int))
        return pipeline

    with Harness(reading("latest"), partitions=1, workers=0) as harness:
        send(harness, 10)
        harness.scale(1)
        harness.run()
        harness._plan = reading(None).plan()
        told = foreseen(harness)
        assert told
        assert "was read to its end" in told[0]
        harness.workers[0].loop = harness.workers[0].work = None
        assert refused(harness) in told
