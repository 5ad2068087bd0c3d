"""Choose how to get a broker: one that runs already, a container, or a local JVM."""

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from streamkit.errors import Misconfigured
from streamkit.testing.broker import container, jars
from streamkit.testing.broker.cluster import JvmCluster, Wishes
from streamkit.testing.broker.running import Broker
from streamkit.testing.broker.settings import Profile
from streamkit.testing.broker.warmup import prepare

BROKERS_VARIABLE = "STREAMKIT_BROKERS"


def start_broker(
    nodes: int = 1,
    *,
    folder: Path | None = None,
    keep_logs: bool = False,
    on_progress: Callable[[str], None] | None = None,
    extra: Mapping[str, str] | None = None,
    profile: Profile = "test",
) -> Broker:
    """Give a running broker, ready for clients; stop it, or use it in a `with` block.

    The address in STREAMKIT_BROKERS comes first, then a container if Docker has the image, then a local JVM.
    A broker that we start ends with this process, even if this process is killed.

    Args:
        nodes: how many nodes; a container has one, so more than one means local JVMs.
        folder: where the broker makes its own folder; the system's temporary folder if None.
        keep_logs: leave the logs in `Broker.log_folder` after `stop`; after a failed start they always stay.
        on_progress: called with a few words at each step, of which some are slow the first time.
        extra: Kafka's settings by name, over the ones chosen here; for brokers that we start.
        profile: "test" starts quickly in little memory, "bench" has the heap and compiler for throughput.
    """
    return _start(Wishes(nodes, folder, keep_logs, profile, extra or {}), on_progress)


def start_dev_broker(
    nodes: int = 1,
    *,
    port: int | None = None,
    data: Path | None = None,
    on_progress: Callable[[str], None] | None = None,
    extra: Mapping[str, str] | None = None,
) -> Broker:
    """As `start_broker`, for a person: at a port that was chosen, or with data that outlives the broker.

    Args:
        nodes: how many nodes.
        port: where the first node listens, the others at the ports behind it.
        data: a folder whose data is gone on with and stays; the broker is a local JVM then.
        on_progress: called with a few words at each step.
        extra: Kafka's settings by name.

    Raises:
        Misconfigured: the port is taken, or the folder holds something else.
    """
    return _start(Wishes(nodes=nodes, port=port, data=data, extra=extra or {}), on_progress)


def _start(wishes: Wishes, on_progress: Callable[[str], None] | None) -> Broker:
    progress = on_progress or (lambda _text: None)
    nodes = wishes.nodes
    if address := os.environ.get(BROKERS_VARIABLE):
        return Broker(address, "external")
    if nodes < 1:
        raise Misconfigured(f"a broker needs at least one node; got nodes={nodes}")
    began = time.monotonic()
    if nodes == 1 and wishes.data is None and container.missing() is None:
        progress(f"starting a container of {container.image()}")
        broker = container.start(wishes.extra, wishes.port)
    else:
        kafka = prepare(progress)
        progress(f"starting Kafka {jars.kafka_version()} on {nodes} local JVM{'s' if nodes > 1 else ''}")
        broker = JvmCluster(kafka, wishes).start()
    progress(f"broker ready at {broker.bootstrap} after {time.monotonic() - began:.1f} s")
    return broker


def can_start() -> str | None:
    """Say in one sentence why `start_broker` would fail here, or None if some way exists."""
    if os.environ.get(BROKERS_VARIABLE):
        return None
    no_jvm = jars.missing()
    no_container = container.missing() if no_jvm else None
    if no_jvm is None or no_container is None:
        return None
    return f"no broker can be started: {no_jvm}; {no_container}; and {BROKERS_VARIABLE} is not set"
