"""`streamkit dev` starts a real Kafka, says where it is, and takes it away again."""

import asyncio
import json
import signal
import subprocess

import pytest

from streamkit.config import Security
from streamkit.kafka.log import KafkaLog

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
