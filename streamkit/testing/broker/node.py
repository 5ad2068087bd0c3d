"""One node of a local cluster: a JVM, and beside it the watch that ends it with its owner."""

import contextlib
import errno
import select
import socket
import subprocess
import sys
from pathlib import Path

from streamkit.errors import Bug, Misconfigured
from streamkit.testing.broker import watch
from streamkit.testing.broker.settings import HOST, BrokerNode

TAIL_LINES = 15
EXIT_LIMIT_S = 20.0  # SIGKILL acts at once; a machine short of CPU may still take seconds to reap


class PortHold:
    """A port that is ours from the choice until the end, also while no JVM listens on it.

    On Linux the hold is a bound socket that never listens: nobody else is given the port, clients are refused,
    and Java may still bind it, since both sides set SO_REUSEADDR. Elsewhere a port is only chosen, not held.
    """

    def __init__(self, port: int | None = None) -> None:
        """Take this port, or any free one.

        Raises:
            Misconfigured: the port is taken, or not for us.
        """
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._socket.bind((HOST, port or 0))
        except OSError as error:
            self.release()
            if port is None:
                raise
            raise _refused(port, error) from error
        self.port: int = self._socket.getsockname()[1]
        if sys.platform != "linux":
            self.release()

    def release(self) -> None:
        """Give the port back to the machine."""
        self._socket.close()


def _refused(port: int, error: OSError) -> Misconfigured:
    if error.errno == errno.EADDRINUSE:
        return Misconfigured(
            f"port {port} of {HOST} is taken",
            detail="another program listens there, perhaps another broker",
            hint=f"name another one with --port, or leave it out; `ss -ltnp 'sport = :{port}'` shows who it is",
        )
    return Misconfigured(
        f"port {port} of {HOST} is not for us",
        detail=error.strerror or "",
        hint="name one above 1023 with --port, or leave it out",
    )


class NodeProcess:
    """The life of one node's JVM: start, kill, start again.

    Neither the JVM nor its watch is in the terminal's process group, so Ctrl-C reaches the owner alone.
    """

    def __init__(self, node: BrokerNode, command: list[str], discard: Path | None) -> None:
        self.node = node
        self.pid: int | None = None
        self._command = command
        self._discard = discard
        self._watch: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the JVM; it is not ready yet when this returns."""
        self.quit()
        with self.node.log.open("ab") as log:
            self._watch = subprocess.Popen(  # noqa: S603  (our own file and java)
                [sys.executable, "-I", "-S", watch.__file__, str(self._discard or ""), *self._command],
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=self.node.folder,
                start_new_session=True,
            )
        assert self._watch.stdout is not None
        line = self._watch.stdout.readline()
        if not line:
            raise self.failure("the JVM of a test broker did not start")
        self.pid = int(line)

    def is_running(self) -> bool:
        """Tell whether the JVM is alive; its watch closes the stream when it is not."""
        return self._watch is not None and not self._ended(0)

    def kill(self) -> None:
        """Kill the JVM with SIGKILL and return when it is gone; the watch stays, to clean up after the owner."""
        if self._watch is not None:
            self._order(watch.KILL)
            if not self._ended(EXIT_LIMIT_S):
                raise Bug(f"the JVM {self.pid} lives {EXIT_LIMIT_S:.0f} s after SIGKILL")

    def terminate(self) -> None:
        """Ask the JVM to end in good order; `wait` tells when it has."""
        if self._watch is not None:
            self._order(watch.TERMINATE)

    def wait(self, limit_s: float) -> bool:
        """Wait until the JVM ends by itself; False if it has not within the limit."""
        return self._ended(limit_s)

    def quit(self) -> None:
        """Kill the JVM and its watch, and leave the files in place."""
        if self._watch is None:
            return
        self._order(watch.QUIT)
        self._watch.wait(EXIT_LIMIT_S)
        for stream in (self._watch.stdin, self._watch.stdout):
            if stream is not None:
                stream.close()
        self._watch = None
        self.pid = None

    def failure(self, problem: str) -> Misconfigured:
        """Describe a failed start by the last lines of the log."""
        text = self.node.log.read_text(errors="replace") if self.node.log.exists() else ""
        return Misconfigured(
            problem,
            where=str(self.node.log),
            detail="\n".join(text.splitlines()[-TAIL_LINES:]) or "It printed nothing.",
            hint="Read the whole log at the place above; Kafka 4 needs Java 17 or newer.",
        )

    def _order(self, order: bytes) -> None:
        assert self._watch is not None
        assert self._watch.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # a watch that is gone has taken its JVM along
            self._watch.stdin.write(order)

    def _ended(self, limit_s: float) -> bool:
        """Wait for the end of the watch's output, which is the end of the JVM."""
        assert self._watch is not None
        assert self._watch.stdout is not None
        poll = select.poll()
        poll.register(self._watch.stdout, select.POLLIN)
        return bool(poll.poll(limit_s * 1000))
