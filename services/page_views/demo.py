"""The demo: a pipeline with two workers counts page views, one worker is killed, and an auditor counts after it.

    make demo                                                  on a real Kafka, about a minute
    python -m services.page_views.demo --seconds 20            shorter
    python -m services.page_views.demo --memory                without Kafka, in one process

Exits with 0 if the audit finds every view counted exactly once, with 1 if not. Read `tell`: it is the whole story.
"""

import argparse
import asyncio
import contextlib
import os
import signal
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

from rich.console import Console
from rich.text import Text

from services.page_views.demo_audit import Audit, audit
from services.page_views.demo_kafka import Failed, OnKafka
from services.page_views.demo_memory import InMemory
from services.page_views.demo_view import Screen, Tally, WorkerSeen, verdict
from services.page_views.load import Sent
from streamkit.errors import Retry, StreamkitError
from streamkit.testing.broker import can_start, start_broker

SECONDS_ON_KAFKA = 60.0
SECONDS_IN_MEMORY = 20.0
# When the worker is killed, as a part of the whole: late enough to be calm, early enough to see it go on.
KILL_AT = 0.4
VICTIM = 2
# Less than this, in seconds of traffic, is only what is on its way.
ON_ITS_WAY_S = 0.25
FRAME_S = 0.2
START_LIMIT_S = 60.0
# Counting that stands still for so long has ended, whatever is missing.
SILENCE_LIMIT_S = 30.0
PAGES_AT_THE_END = 3
PIPE_COLUMNS = 110


class Stage(Protocol):
    """Where the demo plays: on Kafka with processes, or in memory."""

    killing: str
    reader: str

    @property
    def facts(self) -> list[tuple[str, str]]:
        """What the audience should know."""
        ...

    async def start(self) -> None:
        """Create the topics and start the workers."""
        ...

    async def is_ready(self) -> bool:
        """Both workers have their tasks."""
        ...

    def start_load(self, rate: float, seconds: float) -> None:
        """Let the visitors come."""
        ...

    def sent(self) -> Sent | None:
        """What the load has sent, once it has ended."""
        ...

    def read_new(self) -> tuple[list[bytes], list[bytes]]:
        """Values that were committed to both topics since the last call."""
        ...

    def workers(self) -> list[WorkerSeen]:
        """The two workers as they are now."""
        ...

    async def kill(self, number: int) -> None:
        """End a worker without a warning."""
        ...

    async def stop_workers(self) -> None:
        """The clean end."""
        ...

    def everything(self) -> tuple[list[bytes], list[bytes]]:
        """All committed values of both topics, read anew from the start."""
        ...

    async def close(self) -> None:
        """End whatever is still there."""
        ...


class Play:
    """One performance: the clock, the tally and the screen."""

    def __init__(self, stage: Stage, screen: Screen, rate: float, seconds: float) -> None:
        self.stage = stage
        self.screen = screen
        self.rate = rate
        self.seconds = seconds
        self.tally = Tally(rate, seconds)
        self._began = time.monotonic()

    @property
    def at_s(self) -> float:
        """Seconds since the visitors came."""
        return time.monotonic() - self._began

    @property
    def is_calm(self) -> bool:
        """Nothing is behind but what is on its way."""
        return self.tally.behind <= self.rate * ON_ITS_WAY_S

    def restart_clock(self) -> None:
        """The visitors come now: from here on the seconds and the records count."""
        self._began = time.monotonic()
        self.tally = Tally(self.rate, self.seconds)
        self.screen.begin()

    async def frame(self) -> list[WorkerSeen]:
        """Look, draw, wait a moment."""
        views, counts = self.stage.read_new()
        workers = self.stage.workers()
        self.tally.add(self.at_s, views, counts)
        self.screen.show(self.at_s, self.tally, workers)
        await asyncio.sleep(FRAME_S)
        return workers

    def say(self, mark: str, text: str, style: str = "default") -> None:
        """An event, now."""
        self.screen.event(self.at_s, mark, text, style)


async def tell(play: Play) -> Sent:
    """The story."""
    await start(play)
    play.stage.start_load(play.rate, play.seconds)
    while play.at_s < play.seconds * KILL_AT:
        await play.frame()
    await kill_one(play)
    while (sent := play.stage.sent()) is None:
        await play.frame()
    await until_counted(play, sent)
    await play.stage.stop_workers()
    return sent


async def start(play: Play) -> None:
    """Wait until both workers have their tasks."""
    for name, text in play.stage.facts:
        play.screen.fact(name, text)
    await play.stage.start()
    while not await ready(play.stage):
        await play.frame()
        if play.at_s > START_LIMIT_S:
            raise Failed(f"the workers did not start within {START_LIMIT_S:.0f} s")
    took_s = play.at_s
    play.restart_clock()
    play.say("▶", f"two workers started in {took_s:.1f} s and share the partitions; the visitors come", "dim")


async def ready(stage: Stage) -> bool:
    """As `Stage.is_ready`; an answer that did not come is a no."""
    try:
        return await stage.is_ready()
    except Retry:
        return False


async def kill_one(play: Play) -> None:
    """Kill a worker, see it come back, see everything caught up; on a slow machine the visitors do not wait for it."""
    victim = play.stage.workers()[VICTIM - 1]
    await play.stage.kill(VICTIM)
    killed_s = play.at_s
    play.say("✗", f"worker {VICTIM}, {victim.life}, {play.stage.killing}", "bold red")
    reborn = False
    while not reborn or play.at_s < play.seconds:
        worker = (await play.frame())[VICTIM - 1]
        if not reborn and worker.life and worker.restarts > victim.restarts:
            reborn = True
            play.say("↻", f"worker {VICTIM} is started again by its parent: {worker.life}", "yellow")
        if reborn and play.is_calm and await ready(play.stage):
            took_s = play.at_s - killed_s
            play.say(
                "✓", f"it has its tasks and state back and nothing is behind, {took_s:.1f} s after", "green"
            )
            return
        if play.at_s - killed_s > START_LIMIT_S:
            raise Failed(f"worker {VICTIM} did not come back within {START_LIMIT_S:.0f} s")


async def until_counted(play: Play, sent: Sent) -> None:
    """Go on while something is counted; if that ends too early, the audit will say what is missing."""
    counted, moved_s = play.tally.counted, play.at_s
    while play.tally.sent < sent.acknowledged or play.tally.behind > 0:
        await play.frame()
        if play.tally.counted > counted:
            counted, moved_s = play.tally.counted, play.at_s
        elif play.at_s - moved_s > SILENCE_LIMIT_S:
            break
    play.screen.show(play.at_s, play.tally, play.stage.workers(), PAGES_AT_THE_END)


async def perform(stage: Stage, console: Console, rate: float, seconds: float) -> bool:
    """Play and audit; True if the audit is good."""
    main = asyncio.current_task()
    for number in (signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, main.cancel if main else lambda: None)
    try:
        with Screen(console, line_every_s=min(5.0, seconds / 4)) as screen:
            sent = await tell(Play(stage, screen, rate, seconds))
        with working(console, "auditing: reading both topics from start to end"):
            found: Audit = await asyncio.to_thread(lambda: audit(*stage.everything()))
        console.print("", verdict(found, sent.acknowledged, stage.reader), "")
        good = found.good and found.records_in == sent.acknowledged
        if good:
            console.print(
                Text("exactly once: a worker was killed, and no view was lost or counted twice", "bold green")
            )
        return good
    finally:
        await stage.close()


@contextlib.contextmanager
def kafka(console: Console, suffix: str | None, log_file: Path) -> Iterator[OnKafka]:
    """A broker for as long as the demo lasts: the one of STREAMKIT_BROKERS, else our own."""
    with working(console, "starting Kafka") as progress:
        broker = start_broker(on_progress=progress)
    with broker:
        # On a broker of others the names must be new; on our own everything is.
        chosen = suffix or (f"-{uuid.uuid4().hex[:6]}" if broker.kind == "external" else "")
        yield OnKafka(broker, chosen, log_file)


@contextlib.contextmanager
def working(console: Console, text: str) -> Iterator[Callable[[str], None]]:
    """Show that something takes time: a spinner on a terminal, lines elsewhere."""
    if not console.is_terminal:
        yield console.print
        return
    with console.status(text) as status:
        yield status.update


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m services.page_views.demo",
        description="Watch a pipeline survive a crash, then audit it.",
    )
    parser.add_argument("--seconds", type=float, help="how long visitors come (60; in memory 20)")
    parser.add_argument("--rate", type=float, default=2000, help="page views per second (2000)")
    parser.add_argument("--memory", action="store_true", help="without Kafka, on the in-memory log")
    parser.add_argument(
        "--suffix", help="ends the names of topics and pipeline; chosen on a broker of others"
    )
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo; returns the exit code."""
    given = parse(arguments)
    width = None if sys.stdout.isatty() else PIPE_COLUMNS
    console = Console(highlight=False, markup=False, emoji=False, width=width)
    handle, name = tempfile.mkstemp(prefix="streamkit-demo-", suffix=".log")
    os.close(handle)
    code = 1
    try:
        code = 0 if run(given, console, Path(name)) else 1
    except (KeyboardInterrupt, asyncio.CancelledError):
        console.print("stopped", style="dim")
        code = 130
    except StreamkitError as error:
        console.print(Text(error.render()))
    except Failed as error:
        console.print(Text(f"the demo failed: {error}", style="bold red"))
    finally:
        if code == 1:
            console.print(f"what the workers said is in {name}", soft_wrap=True)
        else:
            Path(name).unlink()
    return code


def run(given: argparse.Namespace, console: Console, log_file: Path) -> bool:
    """On Kafka if there can be one, else in memory; True if the audit is good."""
    reason = "asked for with --memory" if given.memory else can_start()
    if reason:
        seconds = given.seconds or SECONDS_IN_MEMORY
        return asyncio.run(perform(InMemory(reason, log_file), console, given.rate, seconds))
    with kafka(console, given.suffix, log_file) as stage:
        return asyncio.run(perform(stage, console, given.rate, given.seconds or SECONDS_ON_KAFKA))


if __name__ == "__main__":
    sys.exit(main())
