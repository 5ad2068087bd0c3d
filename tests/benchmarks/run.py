"""Measure streamkit, in the same run as a raw copy of the same records, on a broker of our own.

    make bench                          everything of ours, three interleaved rounds
    make bench ONLY=copy,count          names, or the beginnings of names
    make bench ONLY=memory              what the state of a hundred tasks takes, against its budget; no broker
    make bench PEERS=1                  the peers too: quix, faust, bytewax, kafka_streams (or their names)
    make bench AGAINST=../before        another checkout too, case by case: what a change costs
    python -m tests.benchmarks.run --profile count_exactly_once

The last line of standard output is one JSON object. A wrong output or a failed run ends with exit code 1.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from streamkit.testing.broker import start_broker
from tests.benchmarks import memory, prefill, profiling, report
from tests.benchmarks.against import other_tree, twin_cases, twin_latencies
from tests.benchmarks.cases import CASES, FEW_KEYS, Case, Figures, measure
from tests.benchmarks.check import WrongOutput
from tests.benchmarks.child import ROOT, RunFailed
from tests.benchmarks.cluster import Cluster
from tests.benchmarks.latency import LATENCIES, LATENCY, Latency, measure_latency
from tests.benchmarks.peers.roster import peer_cases, peer_latencies

ROUNDS = 3
RECORDS = 2_000_000
LATENCY_S = 30.0
# Needs no broker, so it is asked for alone.
MEMORY = "memory"


def main() -> int:
    wishes = parse()
    names = [each for each in (wishes.only or "").split(",") if each]
    if names == [MEMORY]:
        return memory.run()
    cases = [case for case in CASES if is_wanted(case.name, names)]
    latencies = {name: start for name, start in LATENCIES.items() if is_wanted(name, names)}
    if not cases and not latencies:
        known = ", ".join([*(case.name for case in CASES), *LATENCIES, MEMORY])
        print(f"error: nothing is named {wishes.only!r}; there are {known}", file=sys.stderr)
        return 2
    if wishes.against:
        tree = other_tree(wishes.against)
        cases, latencies = twin_cases(cases, tree), twin_latencies(latencies, tree)
    cases += peer_cases(wishes.peers, say)
    latencies |= peer_latencies(wishes.peers) if latencies else {}
    with tempfile.TemporaryDirectory(prefix="streamkit-bench-") as folder:
        broker = start_broker(profile="bench", folder=Path(folder), on_progress=say)
        with broker:
            cluster = Cluster(broker.bootstrap, broker.pids() if broker.kind == "jvm" else [])
            inputs = fill(cluster, cases, wishes.records)
            if wishes.profile:
                return profiling.run(cases, cluster, inputs, wishes.records)
            results = report.Results()
            warm_up(cluster, cases, inputs, wishes.records)
            if latencies:
                # as `warm_up`: counted nowhere
                attempt(report.Results(), 0, LATENCY, partial(measure_latency, cluster, wishes.latency_s))
            for number in range(1, wishes.rounds + 1):
                # Backwards every other time: of two that are compared, each goes first as often.
                turn = 1 if number % 2 else -1
                for case in cases[::turn]:
                    size = case.records(wishes.records)
                    source = inputs[size, case.keys]
                    attempt(results, number, case.name, partial(measure, case, cluster, source, size))
                for name, start in list(latencies.items())[::turn]:
                    run = partial(measure_latency, cluster, wishes.latency_s, start)
                    attempt(results, number, name, run)
            for source in inputs.values():
                cluster.delete_containing(source)
    return report.finish(results)


def warm_up(cluster: Cluster, cases: list[Case], inputs: dict[tuple[int, int], str], records: int) -> None:
    """A round that counts for nothing: the broker compiles what each case needs of it, at nobody's expense.

    Without it the copy, which needs least, runs beside a broker at rest and the others beside one that compiles.
    More keys need nothing else of the broker.
    """
    for case in cases:
        if case.keys == FEW_KEYS and not case.is_peer and case.tree == ROOT:
            size = case.records(records)
            figures = measure(case, cluster, inputs[size, case.keys], size)
            say(f"warm-up  {case.name:<22} {report.line(figures)}  (not counted)")


def attempt(results: report.Results, number: int, name: str, run: Callable[[], Figures | Latency]) -> None:
    """One run; what fails is printed and counted, never left out in silence."""
    try:
        figures = run()
    except (RunFailed, WrongOutput, TimeoutError) as error:
        results.fail(name)
        say(f"round {number}  {name:<22} FAILED: {type(error).__name__}: {error}")
        return
    results.add(name, figures)
    say(f"round {number}  {name:<22} {report.line(figures)}")


def fill(cluster: Cluster, cases: list[Case], records: int) -> dict[tuple[int, int], str]:
    """One input topic per number of records and keys; cases with the same numbers read the same topic."""
    run = f"{os.getpid():x}"
    topics = {}
    for size, keys in sorted({(case.records(records), case.keys) for case in cases}):
        topic = topics[size, keys] = prefill.topic_name(run, size, keys)
        say(f"filling {topic}")
        prefill.prefill(cluster, topic, size, keys)
    return topics


def is_wanted(name: str, wishes: list[str]) -> bool:
    """Whether one of the wishes is its name, or the beginning of it and the whole name of no other."""
    known = {*LATENCIES, *(case.name for case in CASES)}
    return not wishes or any(name == each or (each not in known and name.startswith(each)) for each in wishes)


def say(text: str) -> None:
    print(f"[load {os.getloadavg()[0]:4.1f}] {text}", file=sys.stderr, flush=True)


def parse() -> argparse.Namespace:
    environment = os.environ
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", help="names, or beginnings of names, separated by commas")
    parser.add_argument("--peers", default=environment.get("PEERS", ""), help="1 for all, or names")
    parser.add_argument("--against", metavar="FOLDER", help="another checkout of this project")
    parser.add_argument("--rounds", type=int, default=int(environment.get("ROUNDS", ROUNDS)))
    parser.add_argument("--records", type=int, default=int(environment.get("RECORDS", RECORDS)))
    parser.add_argument("--latency-s", type=float, default=float(environment.get("LATENCY_S", LATENCY_S)))
    parser.add_argument("--profile", metavar="CASE", help="run one streamkit case under cProfile")
    wishes = parser.parse_args()
    if wishes.profile:
        wishes.only, wishes.peers = wishes.profile, ""
    return wishes


if __name__ == "__main__":
    sys.exit(main())
