"""processes: several workers on one host, kept running by a parent that does nothing else.

    a worker dies         it is started again, later each time
    a person must act     (settings, plan, a bug) all others finish their span, and the parent fails
    SIGTERM or Ctrl-C     every worker finishes its span, commits and leaves; the second one kills them
    the parent is killed  its workers notice by the end of their standard input, and end as after SIGTERM

A worker that is killed is just a crash, and a crash is always safe.
"""

import asyncio
import contextlib
import os
import signal
import sys
import threading
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping, Sequence

import structlog

from streamkit.config import Settings
from streamkit.errors import Bug, Misconfigured
from streamkit.runtime.retries import Backoff
from streamkit.runtime.stop_signals import stop_signals

log = structlog.get_logger()

# Set in the environment of a worker that has a parent: its number among its siblings.
WORKER_NUMBER_VARIABLE = "STREAMKIT_WORKER_NUMBER"
# And how many siblings there are, itself included: they share the memory of the host.
WORKER_COUNT_VARIABLE = "STREAMKIT_WORKER_COUNT"

# How a worker tells its parent why it ended; the numbers are those of BSD's sysexits.
EXIT_TRY_AGAIN = 75
EXIT_PERSON_MUST_ACT = 78
# What a shell says of a program ended by Ctrl-C.
EXIT_KILLED = 130

# Beyond the time that a worker has to drain: connections close, RocksDB writes its last files.
CLOSING_S = 5.0


def exit_code(error: BaseException) -> int:
    """What a worker with a parent returns for an error: whether starting it again can help."""
    return EXIT_PERSON_MUST_ACT if isinstance(error, (Misconfigured, Bug)) else EXIT_TRY_AGAIN


def worker_number() -> int | None:
    """Our number if a parent started us; None for a worker on its own."""
    number = os.environ.get(WORKER_NUMBER_VARIABLE, "")
    return int(number) if number.isdigit() else None


def worker_count() -> int:
    """How many workers our parent runs; 1 for a worker on its own."""
    count = os.environ.get(WORKER_COUNT_VARIABLE, "")
    return int(count) if count.isdigit() and worker_number() is not None else 1


def end_with_parent(drain_timeout_s: float) -> None:
    """From now on the end of standard input, which is the parent's end, stops this process.

    First as SIGTERM does, then at once: a loop that hangs in the user's code must not outlive its parent.
    """

    def watch() -> None:
        with contextlib.suppress(OSError):
            while os.read(sys.stdin.fileno(), 1):
                pass
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(drain_timeout_s + CLOSING_S)
        os._exit(EXIT_TRY_AGAIN)

    threading.Thread(target=watch, name="streamkit-parent-watch", daemon=True).start()


class Processes:
    """The parent's side: a fixed number of workers, each run by the same command."""

    def __init__(self, command: Sequence[str], count: int, settings: Settings) -> None:
        self._command = tuple(command)
        self._count = count
        self._settings = settings
        self._running: dict[int, Process] = {}
        self._stopping = asyncio.Event()
        self._must_act = False
        self._killed = False

    async def run(self) -> int:
        """Keep the workers running until a signal or an error ends them all; returns the exit code."""
        with stop_signals(self._stop_once, self.kill):
            lives = [asyncio.create_task(self._keep_running(number)) for number in range(self._count)]
            late = asyncio.create_task(self._kill_the_late())
            await asyncio.gather(*lives)
            late.cancel()
        if self._killed:
            return EXIT_KILLED
        return 1 if self._must_act else 0

    @property
    def was_stopped(self) -> bool:
        """Whether the workers were told to end, and did not do so by themselves."""
        return self._stopping.is_set()

    def stop(self) -> None:
        """Let every worker finish its span, commit and leave."""
        self._stopping.set()
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        """End every worker on the spot."""
        self._killed = True
        self._stopping.set()
        self._send(signal.SIGKILL)

    async def _keep_running(self, number: int) -> None:
        """The lives of one worker."""
        backoff = Backoff(self._settings)
        loop = asyncio.get_running_loop()
        while not self._stopping.is_set():
            started_s = loop.time()
            code, pid = await self._run_once(number)
            if self._stopping.is_set():
                return
            if code == 0:
                log.info("worker ended by itself", number=number)
                return
            if code == EXIT_PERSON_MUST_ACT:
                log.error("a worker cannot go on: stopping the others", number=number)
                self._must_act = True
                self.stop()
                return
            if loop.time() - started_s > self._settings.restart_delay_last_s:
                backoff.reset()  # it ran well for a while: this is another failure, not the same again
            delay_s = backoff.next_delay_s()
            log.warning(
                "worker died: starting it again",
                number=number,
                pid=pid,
                how=how_it_ended(code),
                seconds=delay_s,
            )
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), delay_s)

    async def _run_once(self, number: int) -> tuple[int, int]:
        """One life of one worker; returns its exit code, and what its process id was."""
        process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=PIPE,  # never written to: its end tells the worker that we are gone
            env=_environment(number, self._count, os.environ),
            process_group=0,  # Ctrl-C reaches us alone; the workers hear of it from us, once
        )
        self._running[number] = process
        if self._stopping.is_set():  # the others have had their signal; a second one would kill them
            _signal(process, signal.SIGKILL if self._killed else signal.SIGTERM)
        try:
            return await process.wait(), process.pid
        finally:
            del self._running[number]

    async def _kill_the_late(self) -> None:
        """A drain that hangs must not hang for ever."""
        await self._stopping.wait()
        await asyncio.sleep(self._settings.drain_timeout_s + CLOSING_S)
        log.error("workers did not end in time: killing them", numbers=sorted(self._running))
        self._must_act = True
        self._send(signal.SIGKILL)

    def _stop_once(self) -> None:
        if not self._stopping.is_set():
            self.stop()

    def _send(self, number: signal.Signals) -> None:
        for process in self._running.values():
            _signal(process, number)


def how_it_ended(code: int) -> str:
    """An exit code in words."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


def _signal(process: Process, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(number)


def _environment(number: int, count: int, inherited: Mapping[str, str]) -> dict[str, str]:
    return {**inherited, WORKER_NUMBER_VARIABLE: str(number), WORKER_COUNT_VARIABLE: str(count)}
