"""attempts: nobody runs in circles: how often a record is run, whatever its fate, before something comes of it."""

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

from streamkit.model.ids import TopicPartition
from streamkit.model.records import LogRecord
from streamkit.task.ingest import Intake
from streamkit.task.task import Task
from tests.simulation.world import World

# How often a record may be run while no commit passes it and nobody says a word about its partition: twice as often as
# all the faults of a seed together make it. A dead letter needs no word of its own: it is in the commit that passes.
RUNS_MAX = 20

# What a worker says that the group has put out although it lives, and under which name such moments are counted.
PUT_OUT_LINES = (
    "this worker is not a member of the group any more",
    "the broker refused us as a former owner: joining the group again",
)
PUT_OUT = "put out alive"

# What is counted at the moment: one world at a time.
_counting: list["Attempts"] = []


class Attempts:
    """I17: no record is run again and again without a commit, a letter or a warning in between."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._warnings: dict[str, int] = {}
        # For each record: what was known of it when it was run last, and how often it was run since that has changed.
        self._runs: dict[tuple[TopicPartition, int], tuple[object, int]] = {}

    def counting(self, at: TopicPartition, records: Iterable[LogRecord]) -> Iterator[LogRecord]:
        """The records, each counted when it is taken: those behind one that fails are not run."""
        for record in records:
            if (
                record.offset >= 0
            ):  # one that was handed over within the worker has no place; its source record has
                self._count(at, record.offset)
            yield record

    def _count(self, at: TopicPartition, offset: int) -> None:
        world = self._world
        is_passed = world.broker.groups.group(world.plan.name).positions.get(at, 0) > offset
        known = (is_passed, self._warnings.get(str(at), 0))
        before, runs = self._runs.get((at, offset), (known, 0))
        runs = runs + 1 if known == before else 1
        self._runs[at, offset] = (known, runs)
        if runs == RUNS_MAX:
            world.failures.append(f"I17: {at}@{offset} was run {runs} times, and nothing came of it")

    def warned(self, line: dict[str, Any]) -> None:
        """Somebody warned; what counts is a line that names a place in a partition, or that one of the living was put out."""
        if line.get("event") in PUT_OUT_LINES:
            self._world.trace.counts[PUT_OUT] += 1
        for said in line.values():
            place, is_place, _ = str(said).partition("@")
            if is_place:
                self._warnings[place] = self._warnings.get(place, 0) + 1


def hear(_logger: object, level: str, line: Any) -> Any:
    """A processor of the log: passes on what a person would read as a warning or an error."""
    if level in ("warning", "error"):
        for attempts in _counting:
            attempts.warned(line)
    return line


@contextlib.contextmanager
def counted(world: World) -> Iterator[None]:
    """All records that are run in this world are counted."""
    attempts, begin = Attempts(world), Intake.__init__

    def begin_counting(self: Intake, task: Task, partition: TopicPartition) -> None:
        begin(self, task, partition)
        run: Any = self._run
        self._run = lambda records: run(attempts.counting(partition, records))

    Intake.__init__ = begin_counting  # type: ignore[method-assign]
    _counting.append(attempts)
    try:
        yield
    finally:
        _counting.remove(attempts)
        Intake.__init__ = begin  # type: ignore[method-assign]
