"""ACLs on a real broker: the rights that the guide to deploying names are enough for a worker, and what it may not see does not stop it."""

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka as other
import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from streamkit.testing.broker.secured import SecuredBroker, secured_broker
from tests.cli.conftest import Workspace

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]  # the first run on a machine fetches Kafka

PASSWORD = "Correct0Horse"
LIMIT_S = 30.0
GUIDE = Path(__file__).parents[2] / "streamkit" / "guides" / "deploy.md"


@pytest.fixture(scope="module")
def broker() -> Iterator[SecuredBroker]:
    with secured_broker(PASSWORD, is_guarded=True) as running:
        yield running


@pytest.fixture
def space(broker: SecuredBroker, tmp_path: Path) -> Workspace:
    """A pipeline with a shuffle, state and a sink, whose topics exist."""
    made = Workspace(tmp_path, broker.addresses["PLAINTEXT"])
    applied = made.run("topics", "apply", "--execute")
    assert applied.returncode == 0, applied.stderr
    made.brokers = broker.addresses["SASL_PLAINTEXT"]
    return made


@pytest.fixture
def admin(broker: SecuredBroker) -> AdminClient:
    """Somebody who may do all."""
    return AdminClient({"bootstrap.servers": broker.addresses["PLAINTEXT"]})


@pytest.fixture
def environment(broker: SecuredBroker) -> dict[str, str]:
    return {
        "STREAMKIT_SECURITY_PROTOCOL": "SASL_PLAINTEXT",
        "STREAMKIT_SECURITY_USERNAME": broker.username,
        "STREAMKIT_SASL_PASSWORD": PASSWORD,
    }


Right = tuple[ResourceType, str, ResourcePatternType, AclOperation]


def table_of_rights() -> list[list[str]]:
    """The rows of the guide's table: kind, name, rights."""
    text = GUIDE.read_text().partition("| Resource | Name | Rights |")[2]
    rows = [line.strip("| ").split(" | ") for line in text.splitlines()[2:]]
    return rows[: rows.index([""])]


def rights(space: Workspace) -> list[Right]:
    """What the guide tells to give to the user of the workers of this pipeline."""
    names = {"each source": space.views, "each sink": space.counts}
    found = []
    for kind, name, operations in table_of_rights():
        is_prefix = "prefix" in name
        of_pipeline = f"{space.name}." if is_prefix else space.name
        pattern = ResourcePatternType.PREFIXED if is_prefix else ResourcePatternType.LITERAL
        resource = ResourceType[kind.upper().replace(" ", "_")]
        found += [
            (resource, names.get(name, of_pipeline), pattern, AclOperation[operation.strip()])
            for operation in operations.split(",")
        ]
    return found


def grant(admin: AdminClient, user: str, rights: list[Right]) -> None:
    allow = AclPermissionType.ALLOW
    bindings = [
        AclBinding(kind, name, pattern, f"User:{user}", "*", operation, allow)
        for kind, name, pattern, operation in rights
    ]
    for done in admin.create_acls(bindings).values():
        done.result(LIMIT_S)


@contextlib.contextmanager
def worker(space: Workspace, environment: dict[str, str]) -> Iterator["subprocess.Popen[bytes]"]:
    """A worker, which is told to stop at the end and does so."""
    with (space.folder / "log").open("ab") as file:
        started = subprocess.Popen(
            [space.command, "run", space.target],
            cwd=space.folder,
            env=space.environment(**environment),
            stderr=file,
        )
    try:
        yield started
        os.kill(started.pid, signal.SIGTERM)
        assert started.wait(LIMIT_S) == 0, said(space)
    finally:
        started.kill()
        started.wait()


def said(space: Workspace) -> str:
    return (space.folder / "log").read_text()


def send(broker: SecuredBroker, space: Workspace, count: int) -> None:
    producer = other.Producer({"bootstrap.servers": broker.addresses["PLAINTEXT"]})
    for number in range(count):
        producer.produce(space.views, json.dumps({"page": f"page-{number % 3}"}).encode())
    assert producer.flush(LIMIT_S) == 0


def last_counts(
    broker: SecuredBroker, space: Workspace, total: int, running: "subprocess.Popen[bytes]", isolation: str
) -> dict[str, int]:
    """The newest count of every page, read by somebody else until they sum up."""
    fresh = {
        "group.id": f"audit-{time.monotonic_ns()}",
        "auto.offset.reset": "earliest",
        "isolation.level": isolation,
    }
    consumer = other.Consumer({"bootstrap.servers": broker.addresses["PLAINTEXT"], **fresh})
    consumer.subscribe([space.counts])
    counts: dict[str, int] = {}
    deadline = time.monotonic() + LIMIT_S
    while sum(counts.values()) < total and time.monotonic() < deadline and running.poll() is None:
        record: Any = consumer.poll(0.2)
        if record is not None and not record.error() and record.value().isdigit():
            counts[record.key().decode()] = int(record.value())
    consumer.close()
    return counts


def hold_open(broker: SecuredBroker, topic: str) -> other.Producer:
    """Somebody else begins a transaction on every partition of a topic, and does not end it."""
    stranger = other.Producer(
        {
            "bootstrap.servers": broker.addresses["PLAINTEXT"],
            "transactional.id": f"stranger-{topic}",
            "transaction.timeout.ms": "600000",
        }
    )
    stranger.init_transactions(LIMIT_S)
    stranger.begin_transaction()
    for partition in range(2):
        stranger.produce(topic, b"held", b"held", partition=partition)
    assert stranger.flush(LIMIT_S) == 0
    return stranger


def test_the_rights_that_the_readme_names_are_enough_and_a_held_sink_that_may_not_be_read_stops_nobody(
    broker: SecuredBroker, space: Workspace, admin: AdminClient, environment: dict[str, str]
) -> None:
    grant(admin, broker.username, rights(space))
    send(broker, space, 30)
    with worker(space, environment) as running:
        counts = last_counts(broker, space, 30, running, "read_committed")
        assert counts == {f"page-{number}": 10 for number in range(3)}, said(space)
    stranger = hold_open(broker, space.counts)
    send(broker, space, 30)
    with worker(space, environment) as running:
        counts = last_counts(broker, space, 60, running, "read_uncommitted")
        assert counts == {f"page-{number}": 20 for number in range(3)}, said(space)
    told = [line for line in map(json.loads, said(space).splitlines()) if line["level"] != "info"]
    assert ["a topic that may not be read" in line["event"] for line in told] == [True]
    assert told[0]["partitions"] == [f"{space.counts}[{number}]" for number in range(2)]
    stranger.abort_transaction(LIMIT_S)
