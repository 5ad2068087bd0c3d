"""What a local node is told: its addresses, Kafka's settings, and the JVM's flags."""

import base64
import os
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

HOST = "127.0.0.1"
HEAP_VARIABLE = "STREAMKIT_BROKER_HEAP"

Profile = Literal["test", "bench"]

TEST_SETTINGS = {
    "num.network.threads": "2",
    "num.io.threads": "4",
    "log.cleaner.dedupe.buffer.size": "4194304",  # the default of 128 MB would be half of a small heap
    # A node killed and restarted may register again only after its old session: 9 s by default.
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
}

# For `start_broker(extra=...)`: a broker that says too seldom that it lives. Between its session's end and its next
# heartbeat it is fenced: it answers, but leads nothing, and no broker is up. A machine that stalls does the same.
FENCED_NOW_AND_THEN = {"broker.session.timeout.ms": "1000", "broker.heartbeat.interval.ms": "2500"}


class BrokerNode(NamedTuple):
    """One node of a local cluster: where it listens and where it lives."""

    node_id: int
    port: int
    controller_port: int
    folder: Path
    secured: Mapping[str, int] = {}
    """Ports of further listeners, by their security protocol."""

    @property
    def data(self) -> Path:
        """Folder of Kafka's own files."""
        return self.folder / "data"

    @property
    def log(self) -> Path:
        """File with everything the JVM prints."""
        return self.folder / "broker.log"

    @property
    def properties(self) -> Path:
        """File with the node's settings."""
        return self.folder / "server.properties"


def kafka_id() -> str:
    """Make an id as Kafka writes them: 16 random bytes in URL-safe base64."""
    # Kafka's own ids never begin with a dash either: a command line would take it for an option.
    first, *rest = uuid.uuid4().bytes
    return base64.urlsafe_b64encode(bytes([first & 0x7F, *rest])).rstrip(b"=").decode()


def kafka_settings(
    node: BrokerNode, nodes: Sequence[BrokerNode], profile: Profile, extra: Mapping[str, str]
) -> dict[str, str]:
    """Say how a node joins its cluster; `extra` has the last word."""
    replicas = min(len(nodes), 3)
    in_sync = max(1, replicas - 1)
    clients = _addresses({"PLAINTEXT": node.port, **node.secured})
    return {
        "process.roles": "broker,controller",
        "node.id": str(node.node_id),
        "controller.quorum.voters": ",".join(f"{n.node_id}@{HOST}:{n.controller_port}" for n in nodes),
        "listeners": f"{clients},{_addresses({'CONTROLLER': node.controller_port})}",
        "advertised.listeners": clients,
        "controller.listener.names": "CONTROLLER",
        "log.dirs": str(node.data),
        "auto.create.topics.enable": "false",
        "group.initial.rebalance.delay.ms": "0",
        # Event times in tests are often years old; by default such records are deleted within minutes.
        "log.retention.ms": "-1",
        "default.replication.factor": str(replicas),
        "min.insync.replicas": str(in_sync),
        "offsets.topic.replication.factor": str(replicas),
        "offsets.topic.num.partitions": "4",
        "transaction.state.log.replication.factor": str(replicas),
        "transaction.state.log.min.isr": str(in_sync),
        "transaction.state.log.num.partitions": "4",
        "share.coordinator.state.topic.replication.factor": str(replicas),
        "share.coordinator.state.topic.min.isr": str(in_sync),
        "share.coordinator.state.topic.num.partitions": "4",
        **(TEST_SETTINGS if profile == "test" else {}),
        **extra,
    }


def _addresses(ports: Mapping[str, int]) -> str:
    return ",".join(f"{listener}://{HOST}:{port}" for listener, port in ports.items())


def jvm_flags(nodes: int, profile: Profile) -> list[str]:
    """Choose between a quick start ("test") and steady throughput ("bench")."""
    default = "1g" if profile == "bench" else "512m" if nodes == 1 else "256m"
    heap = os.environ.get(HEAP_VARIABLE) or default
    if profile == "bench":
        return [f"-Xmx{heap}", f"-Xms{heap}", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"]
    return [f"-Xmx{heap}", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]


def write_node(node: BrokerNode, settings: Mapping[str, str], cluster_id: str, checkpoint: bytes) -> None:
    """Write what `kafka-storage format` would write, without a JVM. Data that is there already is left alone.

    The checkpoint holds the feature levels of a new cluster. Without it Kafka starts too, but as an old
    cluster: transaction.version 0, hence without the transaction protocol that production uses.
    """
    node.data.mkdir(parents=True, exist_ok=True)
    node.properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    if (node.data / "meta.properties").exists():
        return
    meta = {
        "version": "1",
        "cluster.id": cluster_id,
        "node.id": str(node.node_id),
        "directory.id": kafka_id(),
    }
    (node.data / "bootstrap.checkpoint").write_bytes(checkpoint)
    # The last, because it says that the folder is whole.
    (node.data / "meta.properties").write_text("".join(f"{key}={value}\n" for key, value in meta.items()))
