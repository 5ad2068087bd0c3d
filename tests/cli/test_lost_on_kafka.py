"""Internal topics deleted on a real broker while nobody runs: `check` and `run` say the same, and the way out works."""

import os
import signal

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from streamkit.testing.broker import Broker
from tests.cli.test_run_on_kafka import LIMIT_S, last_counts, produce, running

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]


@pytest.fixture
def space(make_workspace, kafka_broker: Broker):
    """A pipeline that has counted 100 views, sent by way of its shuffle's topic, and was stopped."""
    made = make_workspace(kafka_broker.bootstrap)
    plain = made.environment
    made.environment = lambda **extra: plain(STREAMKIT_LOCAL_SHUFFLE="false", **extra)
    assert made.run("topics", "apply", "--execute").returncode == 0
    count(made, 100)
    return made


def count(space, total: int) -> None:
    """Run until this many views of page a were counted."""
    produce(space, ["a"] * (total if total == 100 else 10))
    with running(space) as run:
        assert last_counts(space, 1, total) == {"a": total}, run.log.read_text()
        os.kill(run.process.pid, signal.SIGTERM)
        assert run.process.wait(LIMIT_S) == 0


def alter(space, topic: str, **entries: str) -> None:
    changes = [
        ConfigEntry(name.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
        for name, value in entries.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=changes)
    admin = AdminClient({"bootstrap.servers": space.brokers})
    admin.incremental_alter_configs([resource])[resource].result(30)


@pytest.mark.parametrize(("topic", "code"), [("changelog", "SK550"), ("shuffle", "SK540")])
def test_a_topic_that_was_deleted_is_refused_and_the_way_out_works(space, topic: str, code: str) -> None:
    lost = f"{space.name}.by_page.{topic}.1"
    admin = AdminClient({"bootstrap.servers": space.brokers})
    admin.delete_topics([lost])[lost].result(30)
    for _ in range(2):
        stopped = space.run("run", space.target, STREAMKIT_LOGS="quiet")
        assert stopped.returncode == 1
        assert f"error[{code}]" in stopped.stderr
        assert lost in stopped.stderr
        assert "--drop-state --execute" in stopped.stderr
    checked = space.run("check", space.target)
    assert checked.returncode == 1
    assert f"✗ error[{code}]" in checked.stdout
    assert lost in checked.stdout

    anew = ("offsets", "reset", space.target, "--to", "earliest", "--drop-state")
    shown = space.run(*anew)
    assert shown.returncode == 0
    assert f"- empty {lost}" in shown.stdout
    done = space.run(*anew, "--execute")
    assert done.returncode == 0, done.stderr
    assert space.run("check", space.target).returncode == 0
    count(space, 110)


def test_an_altered_configuration_is_set_back_on_the_next_start(space) -> None:
    changelog, shuffle = (f"{space.name}.by_page.{kind}.1" for kind in ("changelog", "shuffle"))
    alter(space, changelog, cleanup_policy="compact,delete", message_timestamp_type="CreateTime")
    alter(space, shuffle, cleanup_policy="compact")
    told = space.run("check", space.target)
    assert told.returncode == 0
    assert told.stdout.count("will be set back") == 2
    count(space, 110)
    assert "will be set back" not in space.run("check", space.target).stdout
