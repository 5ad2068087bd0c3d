"""One measured process: started fresh, watched from outside, ended by us if it does not end by itself."""

import contextlib
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from tests.benchmarks.clock import cpu_of_all_s, cpu_s
from tests.benchmarks.cluster import Cluster

ROOT = Path(__file__).resolve().parents[2]
END_LIMIT_S = 30.0
SHOWN_LINES = 15


class Reading(NamedTuple):
    """The clocks at one moment: the measured process, the wall, the broker (None if we may not look at it)."""

    cpu_s: float
    wall_s: float
    broker_s: float | None
    facts: Mapping[str, float]


class RunFailed(Exception):
    """The measured process died, or did not get to the end in time."""


class Child:
    """A measured process. It says `first`, `warm`, `last` on its standard output as it gets there (clock.mark)."""

    def __init__(
        self,
        command: Sequence[str],
        cluster: Cluster,
        log: Path,
        environment: Mapping[str, str] | None = None,
        tree: Path = ROOT,
    ) -> None:
        self._cluster = cluster
        self._log = log
        self._marks: dict[str, Reading] = {}
        self._news = threading.Condition()
        with log.open("w") as errors:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                cwd=tree,
                env={**os.environ, **(environment or {})},
            )
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._listener.join()
        assert self.process.stdout is not None
        self.process.stdout.close()

    def wait_for(self, name: str, limit_s: float) -> Reading:
        """The clocks when the process got to this point, as it read them itself."""
        deadline = time.monotonic() + limit_s
        with self._news:
            while name not in self._marks:
                self._require_alive(f'before "{name}"')
                if time.monotonic() > deadline:
                    raise RunFailed(f'"{name}" not reached within {limit_s:.0f} s\n{self.tail()}')
                self._news.wait(0.2)
            return self._marks[name]

    def reading(self) -> Reading:
        """The clocks of now, read from outside."""
        self._require_alive("while it was watched")
        with contextlib.suppress(OSError):
            return Reading(cpu_s(self.process.pid), time.monotonic(), cpu_of_all_s(self._cluster.pids), {})
        raise RunFailed(f"the process ended while it was watched\n{self.tail()}")

    def stop(self) -> None:
        """Ask it to end, as an operator would; a process that ends badly is a failed run."""
        self.process.send_signal(signal.SIGTERM)
        self.wait_end()

    def wait_end(self) -> None:
        try:
            code = self.process.wait(END_LIMIT_S)
        except subprocess.TimeoutExpired:
            raise RunFailed(f"still there {END_LIMIT_S:.0f} s after its end\n{self.tail()}") from None
        if code != 0:
            raise RunFailed(f"exit code {code}\n{self.tail()}")

    def tail(self) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-SHOWN_LINES:])

    def _require_alive(self, when: str) -> None:
        if self.process.poll() not in (None, 0):
            raise RunFailed(f"exit code {self.process.returncode} {when}\n{self.tail()}")

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if not line.startswith('{"mark"'):
                continue
            said = json.loads(line)
            broker_s = cpu_of_all_s(self._cluster.pids)
            name, used_s, wall_s = said.pop("mark"), said.pop("cpu_s"), said.pop("wall_s")
            with self._news:
                self._marks[name] = Reading(used_s, wall_s, broker_s, said)
                self._news.notify_all()
