"""What every caller holds: a running broker, whoever runs it."""

from pathlib import Path
from types import TracebackType
from typing import Self

from streamkit.errors import Misconfigured


class Broker:
    """A running broker or cluster that is ready for clients; leaving its `with` block stops it.

    This class is a broker that somebody else runs: stopping it does nothing, and its nodes are out of reach.
    `JvmBroker` and `ContainerBroker` own what they run.
    """

    def __init__(self, bootstrap: str, kind: str, log_folder: Path | None = None) -> None:
        self.bootstrap = bootstrap
        self.kind = kind
        self.log_folder = log_folder

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<Broker {self.kind} {self.bootstrap}>"

    def stop(self) -> None:
        """End what we started, and remove its data; calling it again does nothing."""

    def kill(self, node: int = 0) -> None:
        """Kill a node as a power cut would (SIGKILL); its data and its port stay for `restart`."""
        raise self._out_of_reach(f"kill node {node}")

    def restart(self, node: int = 0) -> None:
        """Start a node again on the same data and port, and return when it is ready."""
        raise self._out_of_reach(f"restart node {node}")

    def pids(self) -> list[int]:
        """Process ids of the nodes that run now."""
        raise self._out_of_reach("list process ids")

    def _out_of_reach(self, wish: str) -> Misconfigured:
        return Misconfigured(
            f"cannot {wish} of a broker of kind {self.kind!r}",
            detail="Only nodes that run as local JVMs can be killed and restarted.",
            hint="Unset STREAMKIT_BROKERS, and set STREAMKIT_KAFKA_IMAGE= (empty) to leave Docker aside.",
        )
