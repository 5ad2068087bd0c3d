"""What is measured: each case says what it reads, what runs, when it is over and how its output is judged."""

import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from tests.benchmarks import check
from tests.benchmarks.child import ROOT, Child, Reading, RunFailed
from tests.benchmarks.cluster import Cluster

RUN_LIMIT_S = 600.0
START_LIMIT_S = 90.0
WATCH_PAUSE_S = 0.05  # 20 small requests a second: far below a thousandth of what the broker does meanwhile

FEW_KEYS = 1_000
MANY_KEYS = 200_000
MOST_KEYS = 1_000_000


class Place(NamedTuple):
    """Where one run of one case takes place: names that are nobody else's, a folder of its own."""

    cluster: Cluster
    tag: str
    source: str
    target: str
    folder: Path
    profile: Path | None = None
    # The checkout whose code runs; see `against.py`.
    tree: Path = ROOT


class Case(NamedTuple):
    """One row of the table. `share` is the part of the run's records that a slow peer gets."""

    name: str
    run: Callable[["Case", Place, int], "Figures"]
    check: check.Check
    keys: int = FEW_KEYS
    share: float = 1.0
    options: Sequence[str] = ()
    is_peer: bool = False
    tree: Path = ROOT

    def records(self, records: int) -> int:
        """How many records this case reads: its share, and the same number of every key."""
        return max(self.keys, int(records * self.share) // self.keys * self.keys)


class Figures(NamedTuple):
    """What one run says, all per record."""

    cpu_us: float
    broker_us: float | None
    records_per_s: float

    @classmethod
    def between(cls, first: Reading, last: Reading, records: int) -> "Figures":
        broker_us = None
        if first.broker_s is not None and last.broker_s is not None:
            broker_us = (last.broker_s - first.broker_s) / records * 1e6
        return cls(
            (last.cpu_s - first.cpu_s) / records * 1e6, broker_us, records / (last.wall_s - first.wall_s)
        )


def measure(case: Case, cluster: Cluster, source: str, records: int, profile: Path | None = None) -> Figures:
    """One run: new topics, a new process, the figures, and only then the judge."""
    tag = f"bench-{uuid.uuid4().hex[:8]}"
    with tempfile.TemporaryDirectory(prefix=f"{tag}-") as folder:
        place = Place(cluster, tag, source, f"{tag}-out", Path(folder), profile, case.tree)
        cluster.create(place.target)
        try:
            figures = case.run(case, place, records)
            case.check(cluster, place.target, records, case.keys)
        finally:
            cluster.delete_containing(tag)
    return figures


def run_copy(case: Case, place: Place, records: int) -> Figures:
    names = (place.cluster.bootstrap, place.tag, place.source, place.target)
    command = [*module("raw_copy", place.tree), *names, str(records)]
    with Child(command, place.cluster, place.folder / "log", tree=place.tree) as child:
        first, last = child.wait_for("first", START_LIMIT_S), child.wait_for("last", RUN_LIMIT_S)
        child.wait_end()
    return Figures.between(first, last, records)


def run_streamkit(case: Case, place: Place, records: int, **settings: str) -> Figures:
    """The worker knows no end; it is over when its committed positions stand at the end of all that it reads."""
    pipeline, guarantee = case.options
    with start_worker(place, pipeline, guarantee, **settings) as child:
        first = child.wait_for("first", START_LIMIT_S)
        last = wait_committed(child, place, place.source)
        for topic in sorted(place.cluster.topics()):
            if topic.startswith(f"{place.tag}.") and ".shuffle." in topic:
                last = wait_committed(child, place, topic)
        child.stop()
    return Figures.between(first, last, records)


# The same with every record through the shuffle's topic, as it is between two workers.
run_by_topic = partial(run_streamkit, local_shuffle="false")


def start_worker(place: Place, pipeline: str, guarantee: str, **settings: str) -> Child:
    names = (place.tag, place.source, place.target, guarantee, str(place.folder / "state"))
    more = [str(place.profile)] if place.profile else []
    command = [*module("worker", place.tree), pipeline, *names, *more]
    environment = {"STREAMKIT_BROKERS": place.cluster.bootstrap}
    environment |= {f"STREAMKIT_{name.upper()}": value for name, value in settings.items()}
    return Child(command, place.cluster, place.folder / "log", environment, place.tree)


def wait_committed(child: Child, place: Place, topic: str) -> Reading:
    """The clocks just after the group's positions got to the end of a topic."""
    ends = place.cluster.ends(topic)
    positions = place.cluster.committed(place.tag, topic)
    deadline = time.monotonic() + RUN_LIMIT_S
    try:
        while True:
            arrived = positions.now() == ends
            reading = child.reading()
            if arrived:
                return reading
            if time.monotonic() > deadline:
                raise RunFailed(f"stands at {positions.now()}, {topic} ends at {ends}\n{child.tail()}")
            time.sleep(WATCH_PAUSE_S)
    finally:
        positions.close()


def module(name: str, tree: Path) -> list[str]:
    python = sys.executable if tree == ROOT else str(python_of(tree))
    return [python, "-m", f"tests.benchmarks.{name}"]


def python_of(tree: Path) -> Path:
    """The interpreter of another checkout, made by its own `make setup`."""
    return tree / ".venv" / "bin" / "python"


CASES = (
    Case("copy", run_copy, check.copied),
    Case("stateless", run_streamkit, check.mapped, options=("stateless", "exactly_once")),
    Case("count_exactly_once", run_streamkit, check.counted_each, options=("count", "exactly_once")),
    Case("count_at_least_once", run_streamkit, check.counted_each, options=("count", "at_least_once")),
    Case("count_200k", run_streamkit, check.counted_each, MANY_KEYS, options=("count", "exactly_once")),
    Case("shuffle", run_streamkit, check.counted_by_user, options=("shuffled_count", "exactly_once")),
    Case("shuffle_by_topic", run_by_topic, check.counted_by_user, options=("shuffled_count", "exactly_once")),
    Case("window", run_streamkit, check.counted_in_windows, options=("window", "exactly_once")),
    Case("window_1m", run_streamkit, check.counted_in_windows, MOST_KEYS, options=("window", "exactly_once")),
    Case("count_latest", run_streamkit, check.counted_latest, options=("count_latest", "exactly_once")),
)
