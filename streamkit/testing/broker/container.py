"""A broker in a Docker container, through testcontainers; only from an image that the engine already holds."""

import importlib.util
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping

from streamkit.errors import Misconfigured
from streamkit.testing.broker import engine
from streamkit.testing.broker.node import PortHold
from streamkit.testing.broker.running import Broker
from streamkit.testing.broker.settings import HOST, kafka_id
from streamkit.testing.broker.wire import ask

IMAGE_VARIABLE = "STREAMKIT_KAFKA_IMAGE"
DEFAULT_IMAGE = "apache/kafka:4.3.1"
INNER_PORT = 9092
READY_LIMIT_S = 90.0
READY_PAUSE_S = 0.1
TAIL_LINES = 15


def image() -> str:
    """Name the image; an empty STREAMKIT_KAFKA_IMAGE leaves Docker aside."""
    return os.environ.get(IMAGE_VARIABLE, DEFAULT_IMAGE)


def missing() -> str | None:
    """Say in one sentence why no container can run here, or None if one can; takes less than a second."""
    if not image():
        return f"{IMAGE_VARIABLE} is empty"
    if importlib.util.find_spec("testcontainers") is None:
        return "testcontainers is not installed"
    found = engine.has_image(image())
    if found is None:
        return "no Docker engine answers"
    return None if found else f"Docker does not hold the image {image()}"


def start(extra: Mapping[str, str], port: int | None = None) -> Broker:
    """Start a container with one node and return when it is ready for clients."""
    # Imported here because it is optional, and takes a good part of a second.
    from testcontainers.core.config import testcontainers_config  # noqa: PLC0415
    from testcontainers.core.container import DockerContainer  # noqa: PLC0415

    # Its own cleaner is another image, which would be pulled; our watch does that work.
    testcontainers_config.ryuk_disabled = True
    hold = PortHold(port)
    hold.release()
    wanted = DockerContainer(image())
    wanted.ports = {f"{INNER_PORT}/tcp": (HOST, hold.port)}  # with_bind_ports would open it to the network
    for key, value in _environment(hold.port, extra).items():
        wanted.with_env(key, value)
    try:
        wanted.start()
    except OSError as error:  # the engine's refusals are HTTP errors, which are OSErrors
        raise Misconfigured(
            f"Docker did not start a container of {image()}",
            detail=str(error),
            hint=f"Set {IMAGE_VARIABLE}= (empty) to run a local JVM instead.",
        ) from error
    watch = _Watch(wanted.get_wrapped_container().id)
    try:
        _wait_ready(hold.port, lambda: _log(wanted.get_logs()))
    except BaseException:
        watch.end()
        raise
    return Broker(f"{HOST}:{hold.port}", "docker", on_stop=watch.end)


class _Watch:
    """The process that removes a container when it is told to, or when its owner is killed."""

    def __init__(self, container_id: str) -> None:
        self._process = subprocess.Popen(  # noqa: S603  (our own file)
            [sys.executable, "-I", "-S", engine.__file__, container_id],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )

    def end(self) -> None:
        """Remove the container; calling it again does nothing."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(2 * engine.REMOVE_LIMIT_S)


def _wait_ready(port: int, read_log: Callable[[], str]) -> None:
    """Return when a broker answers on this port with a node alive."""
    deadline = time.monotonic() + READY_LIMIT_S
    while (seen := ask(HOST, port)) is None or not seen.nodes:
        if time.monotonic() > deadline:
            raise Misconfigured(
                f"the container of {image()} was not ready within {READY_LIMIT_S:.0f} s",
                detail="\n".join(read_log().splitlines()[-TAIL_LINES:]),
                hint=f"Set {IMAGE_VARIABLE}= (empty) to run a local JVM instead.",
            )
        time.sleep(READY_PAUSE_S)


def _log(streams: tuple[bytes, bytes]) -> str:
    """Join a container's two output streams."""
    return "\n".join(stream.decode(errors="replace") for stream in streams)


def _environment(port: int, extra: Mapping[str, str]) -> dict[str, str]:
    """Say Kafka's settings as the image reads them: KAFKA_X_Y for x.y."""
    settings = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": "1@localhost:9093",
        # Inside the container the outer address leads nowhere, so the broker reaches itself by its own listener.
        "listeners": f"PLAINTEXT://:{INNER_PORT},CONTROLLER://:9093,BROKER://:9094",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{port},BROKER://localhost:9094",
        "inter.broker.listener.name": "BROKER",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,BROKER:PLAINTEXT",
        "auto.create.topics.enable": "false",
        "group.initial.rebalance.delay.ms": "0",
        "log.retention.ms": "-1",
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "4",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "4",
        **extra,
    }
    names = {f"KAFKA_{key.upper().replace('.', '_')}": value for key, value in settings.items()}
    return {"CLUSTER_ID": kafka_id(), **names}
