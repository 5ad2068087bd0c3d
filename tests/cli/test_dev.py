"""`streamkit dev` starts a real Kafka, says where it is, and takes it away again."""

import asyncio
import contextlib
import json
import signal
import socket
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as At

from streamkit.config import Security
from streamkit.kafka.log import KafkaLog
from streamkit.testing.broker.settings import HOST

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]


def test_a_broker_for_people_comes_and_goes(workspace) -> None:
    environment = workspace.environment()
    del environment["STREAMKIT_BROKERS"]
    with subprocess.Popen(
        [workspace.command, "dev", "--output", "json"],
        cwd=workspace.folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout
        assert process.stderr
        said = ""
        while "Ctrl-C stops it" not in said:
            line = process.stderr.readline()
            assert line, f"it ended early: {said}"
            said += line
        data = "".join(process.stdout.readline() for _ in range(5))
        found = json.loads(data)
        assert found["nodes"] == 1
        assert f"export STREAMKIT_BROKERS={found['brokers']}" in said
        listed = workspace.run("topics", "list", "--brokers", found["brokers"], "-o", "json")
        assert {each["topic"] for each in json.loads(listed.stdout)["topics"]} == {
            workspace.views,
            workspace.counts,
        }
        assert workspace.run("topics", "apply", "--execute", "--brokers", found["brokers"]).returncode == 0
        # As long as any Kafka: a pipeline that writes records older than this must not look well here.
        assert asyncio.run(retention_ms(found["brokers"], workspace.counts)) == "604800000"
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    gone = workspace.run("topics", "list", "--brokers", found["brokers"])
    assert gone.returncode == 1
    assert "error[SK120]" in gone.stderr


async def retention_ms(brokers: str, topic: str) -> str:
    log = KafkaLog(brokers, Security(), request_timeout_s=10.0)
    await log.connect()
    try:
        return (await log.admin().describe([topic]))[topic].effective["retention.ms"]
    finally:
        await log.close()


@contextlib.contextmanager
def dev(workspace, *options: str) -> Iterator[tuple[dict[str, Any], "subprocess.Popen[str]"]]:
    """The command on a local JVM, when it has said all; ended in good order unless the block ends it."""
    environment = workspace.environment(STREAMKIT_KAFKA_IMAGE="")
    if "--port" not in options:  # who names a port is not kept from it by the address of another broker
        del environment["STREAMKIT_BROKERS"]
    with subprocess.Popen(
        [workspace.command, "dev", "--output", "json", *options],
        cwd=workspace.folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout
        assert process.stderr
        said = ""
        try:
            while "Ctrl-C stops it and" not in said:
                line = process.stderr.readline()
                assert line, f"it ended early: {said}"
                said += line
            data = ""
            while not data.endswith("\n}\n"):
                data += process.stdout.readline()
            yield json.loads(data) | {"said": said}, process
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)


def refused(workspace, *options: str) -> str:
    """What is said where no broker is started."""
    environment = workspace.environment(STREAMKIT_KAFKA_IMAGE="")
    del environment["STREAMKIT_BROKERS"]
    done = subprocess.run(
        [workspace.command, "dev", *options],
        cwd=workspace.folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode in (1, 2)
    assert done.stdout == ""
    return " ".join(done.stderr.split())


def reader(brokers: str) -> Consumer:
    return Consumer({"bootstrap.servers": brokers, "group.id": "readers", "enable.auto.commit": False})


def records(brokers: str, topic: str) -> list[bytes]:
    consumer = reader(brokers)
    consumer.assign([At(topic, 0, 0)])
    found = consumer.consume(3, timeout=30)
    consumer.close()
    return [each.value() for each in found if each.error() is None]


def position(brokers: str, topic: str) -> int:
    consumer = reader(brokers)
    (found,) = consumer.committed([At(topic, 0)], timeout=30)
    consumer.close()
    return int(found.offset)


def test_kept_data_is_found_again_after_an_end_in_order_and_after_a_kill(workspace) -> None:
    folder = workspace.folder / "kafka"
    with socket.create_server((HOST, 0)) as free:
        port = free.getsockname()[1]
        assert f"port {port} of {HOST} is taken" in refused(workspace, "--port", str(port), "--data", "kafka")
    assert not folder.exists()
    with dev(workspace, "--port", str(port), "--data", "kafka") as (found, _):
        assert found["brokers"] == f"{HOST}:{port}"
        assert (found["data"], found["kept"]) == (str(folder), {"topics": 0, "offsets": 0})
        assert workspace.run("topics", "apply", "--execute", "--brokers", found["brokers"]).returncode == 0
        producer = Producer({"bootstrap.servers": found["brokers"]})
        for value in (b"a", b"b", b"c"):
            producer.produce(workspace.views, value, partition=0)
        assert producer.flush(30) == 0
        consumer = reader(found["brokers"])
        consumer.commit(offsets=[At(workspace.views, 0, 2)], asynchronous=False)
        consumer.close()
        assert "another broker runs on the data" in refused(workspace, "--data", "kafka")
        assert "is taken" in refused(workspace, "--port", str(port))
    ended_in_order = folder / "node-1" / "data" / ".kafka_cleanshutdown"
    assert ended_in_order.exists()
    with dev(workspace, "--data", "kafka") as (found, process):
        assert "keeps its data" in found["said"]
        assert (found["data"], found["kept"]) == (str(folder), {"topics": 2, "offsets": 3})
        assert records(found["brokers"], workspace.views) == [b"a", b"b", b"c"]
        assert position(found["brokers"], workspace.views) == 2
        process.kill()
        process.wait()
    assert not ended_in_order.exists()
    with dev(workspace, "--data", "kafka", "--port", str(port)) as (found, _):
        assert found["kept"] == {"topics": 2, "offsets": 3}
        assert records(found["brokers"], workspace.views) == [b"a", b"b", b"c"]
        assert position(found["brokers"], workspace.views) == 2
    assert "has 3 nodes" in refused(workspace, "--data", "kafka", "--nodes", "3")
    assert "holds something else" in refused(workspace, "--data", "topics")


def test_three_nodes_need_three_ports_and_the_last_is_named(workspace) -> None:
    assert "let it be 65533 at most" in refused(workspace, "--nodes", "3", "--port", "65534")
    assert "--port" in refused(workspace, "--port", "0")


def test_a_reader_that_leaves_early_is_no_error(workspace) -> None:
    done = subprocess.run(
        ["/bin/sh", "-c", f'"{workspace.command}" graph "{workspace.target}" | head -n 1'],
        cwd=workspace.folder,
        env=workspace.environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.startswith("pipeline")
    assert done.stderr == ""
