"""End-to-end latency through one shuffle, exactly once, at a rate that leaves the machine mostly idle.

The clock starts when a record is due and stops when a separate read_committed consumer has its result. The first
fifth of the time is dropped from the percentiles. CPU is that of the measured process over the whole load. A run in
which the input itself came late is void, whatever its figures.
"""

import contextlib
import tempfile
import time
import uuid
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

from tests.benchmarks import open_loop
from tests.benchmarks.cases import Place, start_worker
from tests.benchmarks.check import WrongOutput
from tests.benchmarks.child import Child, RunFailed
from tests.benchmarks.cluster import Cluster
from tests.benchmarks.open_loop import PROBE, SPAWN, USERS, Load

Start = Callable[[Place, Load], Child]

LATENCY = "latency"
RATE_PER_S = 2_000
WARM_SHARE = 0.2
READY_LIMIT_S = 60.0
LATE_LIMIT_S = 30.0
# Input that was not even in its topic by then says nothing about who reads it: the machine is too busy to measure.
INPUT_LATE_P99_MAX_MS = 100.0


class Latency(NamedTuple):
    """What one run says."""

    p50_ms: float
    p99_ms: float
    cpu_us: float
    broker_us: float | None
    input_p99_ms: float


def start_streamkit(place: Place, load: Load) -> Child:
    return start_worker(place, "shuffled_count", "exactly_once")


def start_by_topic(place: Place, load: Load) -> Child:
    """The same with every record through the shuffle's topic, as it is between two workers."""
    return start_worker(place, "shuffled_count", "exactly_once", local_shuffle="false")


def measure_latency(cluster: Cluster, seconds: float, start: Start = start_streamkit) -> Latency:
    """One run: new topics, a new process, a new reader; wrong counts are an error."""
    load = Load(int(RATE_PER_S * seconds) // USERS * USERS, RATE_PER_S)
    tag = f"bench-{uuid.uuid4().hex[:8]}"
    with tempfile.TemporaryDirectory(prefix=f"{tag}-") as folder:
        place = Place(cluster, tag, f"{tag}-in", f"{tag}-out", Path(folder))
        cluster.create(place.source, place.target)
        try:
            with start(place, load) as child:
                return _measure(place, load, child)
        finally:
            cluster.delete_containing(tag)


def _measure(place: Place, load: Load, child: Child) -> Latency:
    bootstrap = place.cluster.bootstrap
    wire, far_end = SPAWN.Pipe()
    reader = SPAWN.Process(target=open_loop.read, args=(bootstrap, place.target, load, far_end), daemon=True)
    reader.start()
    try:
        _wait_for_probe(place, child, wire)
        sent, sending = SPAWN.Pipe(duplex=False)
        sender_arguments = (bootstrap, place.source, load, sending)
        sender = SPAWN.Process(target=open_loop.produce, args=sender_arguments, daemon=True)
        sender.start()
        start_s = sent.recv()
        before = child.reading()
        lateness_s = sent.recv()
        input_ms = sorted(late_s * 1e3 for late_s in lateness_s[int(len(lateness_s) * WARM_SHARE) :])
        arrivals = _collect(wire)
        after = child.reading()
        child.stop()
    finally:
        with contextlib.suppress(OSError):
            wire.send("stop")
        reader.join(5.0)
        reader.kill()
    _check(arrivals, load)
    input_p99_ms = _percentile(input_ms, 0.99)
    if input_p99_ms > INPUT_LATE_P99_MAX_MS:
        raise RunFailed(
            f"void: the input itself came {input_p99_ms:.0f} ms late (p99); the machine is too busy"
        )
    delays = _delays_ms(arrivals, load, start_s)
    broker_us = None
    if before.broker_s is not None and after.broker_s is not None:
        broker_us = (after.broker_s - before.broker_s) / load.records * 1e6
    cpu_us = (after.cpu_s - before.cpu_s) / load.records * 1e6
    return Latency(_percentile(delays, 0.5), _percentile(delays, 0.99), cpu_us, broker_us, input_p99_ms)


LATENCIES: dict[str, Start] = {LATENCY: start_streamkit, f"{LATENCY}_by_topic": start_by_topic}


def _wait_for_probe(place: Place, child: Child, wire: Connection) -> None:
    """Send a record now and then until its result comes out: from here on the system is up."""
    producer = open_loop.make_producer(place.cluster.bootstrap)
    deadline = time.monotonic() + READY_LIMIT_S
    while time.monotonic() < deadline:
        child.reading()
        producer.produce(place.source, open_loop.hit(PROBE), PROBE.encode(), 0)
        producer.flush()
        if wire.poll(0.5):
            wire.recv()
            time.sleep(1.0)  # the other probes come out before the load begins
            return
    raise RunFailed(f"no result within {READY_LIMIT_S:.0f} s\n{child.tail()}")


def _collect(wire: Connection) -> list[tuple[float, str, int]]:
    if not wire.poll(LATE_LIMIT_S):
        wire.send("stop")
    arrivals: list[tuple[float, str, int]] = wire.recv()
    return arrivals


def _check(arrivals: list[tuple[float, str, int]], load: Load) -> None:
    last: dict[str, int] = {}
    for _, name, count in arrivals:
        if count != last.get(name, 0) + 1:
            raise WrongOutput(f"user {name} goes from {last.get(name, 0)} to {count}")
        last[name] = count
    wanted = {open_loop.user(number): load.records // USERS for number in range(USERS)}
    if last != wanted:
        raise WrongOutput(f"{len(arrivals)} results for {load.records} records")


def _delays_ms(arrivals: list[tuple[float, str, int]], load: Load, start_s: float) -> list[float]:
    warm = int(load.records * WARM_SHARE)
    numbered = ((arrived_s, (count - 1) * USERS + int(name[1:])) for arrived_s, name, count in arrivals)
    return sorted(
        (arrived_s - start_s - number / load.per_s) * 1e3 for arrived_s, number in numbered if number >= warm
    )


def _percentile(ordered: list[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]
