"""`check` says what `run` would say, on a real broker: the same error with the same code, and nothing is changed."""

import os
import signal

import pytest
from confluent_kafka import OFFSET_END, Consumer, Producer
from confluent_kafka import TopicPartition as At
from confluent_kafka.admin import AdminClient, NewPartitions

from streamkit.testing.broker import Broker
from tests.cli.test_lost_on_kafka import alter, space
from tests.cli.test_run_on_kafka import LIMIT_S, move_back, produce, running

__all__ = ["space"]

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]


def admin(space) -> AdminClient:
    return AdminClient({"bootstrap.servers": space.brokers})


def internal(space, kind: str) -> str:
    return f"{space.name}.by_page.{kind}.1"


def delete(space, topic: str) -> None:
    client = admin(space)
    client.delete_topics([topic])[topic].result(30)


def delete_changelog(space) -> None:
    delete(space, internal(space, "changelog"))


def delete_shuffle(space) -> None:
    delete(space, internal(space, "shuffle"))


def compact_shuffle(space) -> None:
    """Somebody has records compacted that nobody has read yet."""
    alter(space, internal(space, "shuffle"), cleanup_policy="compact")
    producer = Producer({"bootstrap.servers": space.brokers})
    producer.produce(internal(space, "shuffle"), b"x", b"x")
    assert producer.flush(30) == 0


def widen_changelog(space) -> None:
    client, topic = admin(space), internal(space, "changelog")
    client.create_partitions([NewPartitions(topic, 3)])[topic].result(30)


def delete_unread(space) -> None:
    produce(space, ["a"] * 100)
    client, places = admin(space), [At(space.views, partition, OFFSET_END) for partition in range(2)]
    for deleted in client.delete_records(places).values():
        deleted.result(30)


def rename_store(space) -> None:
    change(space, "per_page", "by_the_page")


def change(space, before: str, after: str) -> None:
    module = space.folder / "services" / "page_views" / "pipeline.py"
    module.write_text(module.read_text().replace(before, after))


def say_the_same(space, code: str, *flags: str) -> None:
    """`check`, `run` and `check` again, all refusing in the same words."""
    before = space.run("check", space.target, *flags, STREAMKIT_LOGS="quiet")
    stopped = space.run("run", space.target, *flags, STREAMKIT_LOGS="quiet")
    after = space.run("check", space.target, *flags, STREAMKIT_LOGS="quiet")
    error = stopped.stderr[stopped.stderr.index(f"error[{code}]: ") :].strip()  # warnings may stand before it
    for checked in (before, after):
        assert f"✗ {error}\n" in checked.stdout
        assert checked.returncode == stopped.returncode == 1


@pytest.mark.parametrize(
    ("spoil", "code"),
    [
        (delete_changelog, "SK550"),
        (delete_shuffle, "SK540"),
        (compact_shuffle, "SK540"),
        (delete_unread, "SK540"),
        (widen_changelog, "SK500"),
        (move_back, "SK530"),
    ],
)
def test_what_run_would_refuse_is_said_by_check(space, spoil, code: str) -> None:
    assert space.run("check", space.target).returncode == 0
    spoil(space)
    say_the_same(space, code)


def test_a_version_that_would_lose_state_is_said_before_it_is_deployed(space) -> None:
    with running(space) as run:
        run.until("it has its tasks", lambda: bool(run.events("assignment")))
        rename_store(space)
        told = space.run("check", space.target, STREAMKIT_LOGS="quiet")
        assert (told.returncode, "✗ error[SK520]: " in told.stdout) == (1, True)
        assert len(run.events("assignment")) == 1  # nobody was disturbed by the look
        os.kill(run.process.pid, signal.SIGTERM)
        assert run.process.wait(LIMIT_S) == 0
    say_the_same(space, "SK520")
    allowed = space.run("check", space.target, "--allow-dropped-state")
    assert allowed.returncode == 0
    assert "✓ committed state and positions  fit" in allowed.stdout
    say_the_same(space, "SK520")  # a look gives nothing up


def test_a_version_that_is_refused_leaves_no_topics_behind(space) -> None:
    change(space, "by_page", "by_other_page")
    say_the_same(space, "SK520")
    assert space.run("run", space.target, "--workers", "2").returncode == 1
    assert not any("by_other_page" in topic for topic in admin(space).list_topics(timeout=30).topics)


def test_another_pipeline_or_consumer_of_that_name_is_said(space) -> None:
    with running(space) as run:
        run.until("it has its tasks", lambda: bool(run.events("assignment")))
        change(space, f'sk.topic("{space.views}", View)', f'sk.topic("{space.counts}", View)')
        change(space, f'sk.topic("{space.counts}", int)', f'sk.topic("{space.views}", int)')
        change(space, "by_page", "by_other_page")
        say_the_same(space, "SK500")
        os.kill(run.process.pid, signal.SIGTERM)
        assert run.process.wait(LIMIT_S) == 0


def test_consumers_in_the_group_of_the_pipeline_are_said(make_workspace, kafka_broker: Broker) -> None:
    space = make_workspace(kafka_broker.bootstrap)
    assert space.run("topics", "apply", "--execute").returncode == 0
    consumer = Consumer({"bootstrap.servers": space.brokers, "group.id": space.name})
    consumer.subscribe([space.views])
    while not consumer.assignment():
        consumer.poll(0.2)
    say_the_same(space, "SK500")
    consumer.close()


def test_a_state_folder_that_cannot_be_written_to_is_said(make_workspace, kafka_broker: Broker) -> None:
    space = make_workspace(kafka_broker.bootstrap)
    assert space.run("topics", "apply", "--execute").returncode == 0
    (space.folder / "file").touch()
    say_the_same(space, "SK500", "--state-dir", "file/state")
