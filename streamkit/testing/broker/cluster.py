"""A cluster of local JVMs: one combined broker and controller per node."""

import shutil
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from streamkit.errors import Misconfigured
from streamkit.testing.broker.kept_data import KeptData, take_folder
from streamkit.testing.broker.node import NodeProcess, PortHold
from streamkit.testing.broker.running import Broker
from streamkit.testing.broker.settings import (
    HOST,
    BrokerNode,
    Profile,
    jvm_flags,
    kafka_id,
    kafka_settings,
    write_node,
)
from streamkit.testing.broker.wire import ask, listens

READY_LIMIT_S = 90.0  # 2-6 s on a quiet machine; a laden one has taken ten times as long
READY_PAUSE_S = 0.05
ORDERLY_LIMIT_S = (
    15.0  # 1-2 s for one node; of several that end at once the last may wait for the others for minutes
)
LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")


class Kafka(NamedTuple):
    """What it takes to run Kafka on a JVM; `warmup.py` makes it."""

    java: str
    jars: Path
    checkpoint: bytes
    archive_flags: tuple[str, ...]

    def command(self, *flags: str) -> list[str]:
        """Say how to start a JVM with Kafka on its class path."""
        # Sorted, because a class archive is only used with the very class path it was made with.
        class_path = ":".join(str(jar) for jar in sorted(self.jars.glob("*.jar")))
        return [self.java, *self.archive_flags, *flags, "-cp", class_path]


class Wishes(NamedTuple):
    """What a caller may choose about a local cluster."""

    nodes: int = 1
    folder: Path | None = None
    keep_logs: bool = False
    profile: Profile = "test"
    extra: Mapping[str, str] = {}
    port: int | None = None
    """Where the first node listens, and the others behind it; any free ports if None."""
    data: Path | None = None
    """A folder whose data is gone on with, and stays; one of its own that goes when it stops, if None."""
    protocols: tuple[str, ...] = ()
    """Security protocols of listeners beside the plain one; `extra` has what they need."""


class JvmCluster:
    """A cluster that lives in local processes and a folder; both go when it stops or its owner dies, but for kept data."""

    def __init__(self, kafka: Kafka, wishes: Wishes) -> None:
        self._wishes = wishes
        self._holds: list[PortHold] = []
        self._kept: KeptData | None = None
        try:
            # All that were asked for before any that are free, which might be one of them.
            first = wishes.port
            ports = [self._hold_port(None if first is None else first + n) for n in range(wishes.nodes)]
            self._folder = self._take_folder(wishes)
            self._cluster_id = kafka_id() if self._kept is None else self._kept.cluster_id
            self.nodes = [self._place(number, port) for number, port in enumerate(ports, 1)]
            self._processes = [self._prepare(kafka, node) for node in self.nodes]
        except BaseException:
            self._release()
            raise
        self._stopped = False

    def start(self) -> Broker:
        """Start all nodes and return when each sees all others; on failure nothing runs, and the logs stay."""
        try:
            for process in self._processes:
                process.start()
            everyone = frozenset(process.node.node_id for process in self._processes)
            deadline = time.monotonic() + READY_LIMIT_S
            for process in self._processes:
                self._wait_ready(process, everyone, deadline)
        except BaseException:
            self._end(keep_logs=True)
            raise
        bootstrap = ",".join(f"{HOST}:{process.node.port}" for process in self._processes)
        return Broker(bootstrap, "jvm", on_stop=self.stop, nodes=self, log_folder=self._folder)

    def stop(self) -> None:
        """End all nodes and remove their files, but for kept data; calling it again does nothing."""
        self._end(keep_logs=self._wishes.keep_logs)

    def kill(self, node: int) -> None:
        """Kill a node with SIGKILL and return when it is gone."""
        self._process(node).kill()

    def restart(self, node: int) -> None:
        """Start a node again on its data and port, and return when it is alive in the cluster."""
        process = self._process(node)
        process.start()
        self._wait_ready(process, frozenset([process.node.node_id]), time.monotonic() + READY_LIMIT_S)

    def pids(self) -> list[int]:
        """List the process ids of the nodes that run now."""
        return [p.pid for p in self._processes if p.pid is not None and p.is_running()]

    def wait(self, limit_s: float) -> bool:
        """Wait until every node has ended by itself; False if one has not within the limit."""
        return all(process.wait(limit_s) for process in self._processes)

    def _take_folder(self, wishes: Wishes) -> Path:
        if wishes.data is not None:
            self._kept = take_folder(wishes.data, wishes.nodes)
            return self._kept.folder
        if wishes.folder is not None:
            wishes.folder.mkdir(parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(prefix="streamkit-kafka-", dir=wishes.folder)).absolute()

    def _place(self, number: int, port: int) -> BrokerNode:
        """Choose where a node listens and lives."""
        secured = {protocol: self._hold_port() for protocol in self._wishes.protocols}
        return BrokerNode(number, port, self._hold_port(), self._folder / f"node-{number}", secured)

    def _hold_port(self, port: int | None = None) -> int:
        """Take a port for as long as the cluster lives."""
        self._holds.append(PortHold(port))
        return self._holds[-1].port

    def _release(self) -> None:
        """Give ports and kept data back."""
        for hold in self._holds:
            hold.release()
        if self._kept is not None:
            self._kept.release()

    def _prepare(self, kafka: Kafka, node: BrokerNode) -> NodeProcess:
        """Write a node's files and say how to start it."""
        settings = kafka_settings(node, self.nodes, self._wishes.profile, self._wishes.extra)
        write_node(node, settings, self._cluster_id, kafka.checkpoint)
        flags = jvm_flags(len(self.nodes), self._wishes.profile)
        quiet = ["-Djava.net.preferIPv4Stack=true", f"-Dlog4j2.configurationFile={LOG_SETTINGS}"]
        command = [*kafka.command(*flags, *quiet), "kafka.Kafka", str(node.properties)]
        if self._kept is not None:
            node.log.unlink(
                missing_ok=True
            )  # that of the run before, of which nothing is to be told any more
            return NodeProcess(node, command, discard=None)
        return NodeProcess(node, command, node.data if self._wishes.keep_logs else node.folder)

    def _process(self, node: int) -> NodeProcess:
        """Find a node by its place in `bootstrap`."""
        if self._stopped or not 0 <= node < len(self._processes):
            raise Misconfigured(
                f"there is no node {node} in this broker",
                detail="It is stopped."
                if self._stopped
                else f"It has {len(self._processes)}, counted from 0.",
            )
        return self._processes[node]

    def _wait_ready(self, process: NodeProcess, expected: frozenset[int], deadline: float) -> None:
        """Return when our own JVM answers, for our own cluster, with the expected nodes alive in it."""
        while True:
            seen = ask(HOST, process.node.port)
            if not process.is_running():
                raise process.failure("the JVM of a test broker ended before it was ready")
            if (
                seen is not None
                and seen.cluster_id == self._cluster_id
                and seen.nodes >= expected
                and all(listens(HOST, port) for port in process.node.secured.values())
            ):
                return
            if time.monotonic() > deadline:
                raise process.failure(
                    f"a test broker was not ready within {READY_LIMIT_S:.0f} s; it said {seen}"
                )
            time.sleep(READY_PAUSE_S)

    def _end_in_order(self) -> None:
        """Let all nodes end by themselves, so that the next start need not look through their data; not for ever."""
        for process in self._processes:
            process.terminate()
        deadline = time.monotonic() + ORDERLY_LIMIT_S
        for process in self._processes:
            if process.is_running():
                process.wait(max(0.0, deadline - time.monotonic()))

    def _end(self, *, keep_logs: bool) -> None:
        """End all nodes; data that is not kept goes: nobody will read it again, so an orderly exit would buy nothing."""
        if self._kept is not None and not self._stopped:
            self._end_in_order()
        self._stopped = True
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.quit()
        self._release()
        if self._kept is not None:
            return
        if not keep_logs:
            shutil.rmtree(self._folder, ignore_errors=True)
            return
        for process in self._processes:
            shutil.rmtree(process.node.data, ignore_errors=True)
