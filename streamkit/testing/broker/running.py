"""What every caller holds: a running broker, whoever runs it."""

from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from streamkit.errors import Misconfigured


class ReachableNodes(Protocol):
    """Nodes that can be killed and restarted one by one; a node is named by its place in `bootstrap`."""

    def kill(self, node: int) -> None:
        """Kill a node at once."""

    def restart(self, node: int) -> None:
        """Start a node again and wait until it is ready."""

    def pids(self) -> list[int]:
        """List the process ids of the nodes that run now."""


class Broker:
    """A running broker or cluster that is ready for clients; leaving its `with` block stops it."""

    def __init__(
        self,
        bootstrap: str,
        kind: str,
        *,
        on_stop: Callable[[], None] | None = None,
        nodes: ReachableNodes | None = None,
        log_folder: Path | None = None,
    ) -> None:
        self.bootstrap = bootstrap
        self.kind = kind
        self.log_folder = log_folder
        self._on_stop = on_stop
        self._nodes = nodes

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<Broker {self.kind} {self.bootstrap}>"

    def stop(self) -> None:
        """End what we started and remove its data, but for what is kept; a broker that somebody else runs is left alone."""
        if self._on_stop is not None:
            self._on_stop()

    def kill(self, node: int = 0) -> None:
        """Kill a node with SIGKILL; its data and its port stay for `restart`."""
        self._reach("kill a node").kill(node)

    def restart(self, node: int = 0) -> None:
        """Start a node again on the same data and port, killing it first if it runs; return when it is ready."""
        self._reach("restart a node").restart(node)

    def pids(self) -> list[int]:
        """List the process ids of the nodes that run now."""
        return self._reach("list the process ids").pids()

    def _reach(self, wish: str) -> ReachableNodes:
        """Return the nodes, if they are ours to touch."""
        if self._nodes is None:
            raise Misconfigured(
                f"cannot {wish} of a broker of kind {self.kind!r}",
                detail="Only nodes that run as local JVMs can be reached one by one.",
                hint="Unset STREAMKIT_BROKERS, and set STREAMKIT_KAFKA_IMAGE= (empty) to leave Docker aside.",
            )
        return self._nodes
