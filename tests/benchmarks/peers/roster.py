"""The peers: which there are, how each is installed and started, and how its output is judged."""

import functools
from collections.abc import Callable
from typing import NamedTuple

from tests.benchmarks import check
from tests.benchmarks.cases import RUN_LIMIT_S, START_LIMIT_S, Case, Figures, Place
from tests.benchmarks.child import Child
from tests.benchmarks.open_loop import Load
from tests.benchmarks.peers import install

# What each peer gets of the records: enough to measure it, little enough to wait for it. A JVM gets twice the
# records and is measured over the second half, when its code is compiled.
QUIX_SHARE, FAUST_SHARE, BYTEWAX_SHARE, JVM_SHARE = 0.075, 0.015, 0.15, 2.0
CACHE_BYTES = 10 * 1024 * 1024  # the default of Kafka Streams

Say = Callable[[str], None]


class Peer(NamedTuple):
    """A system to compare with: what brings it onto this machine, and its cases."""

    install: Callable[[Say], None]
    cases: tuple[Case, ...]


def peer_cases(wished: str, say: Say) -> list[Case]:
    """The cases of the peers that were asked for; installs what is missing."""
    peers, names = make_peers(), wished_names(wished)
    for name in names:
        peers[name].install(say)
    return [case for name in names for case in peers[name].cases]


def peer_latencies(wished: str) -> dict[str, Callable[[Place, Load], Child]]:
    """What is measured beside our own latency."""
    return (
        {"kafka_streams_latency": start_kafka_streams_hop} if "kafka_streams" in wished_names(wished) else {}
    )


def wished_names(wished: str) -> list[str]:
    """The peers that were asked for: "1" or "all", or names."""
    if wished.strip().lower() in ("", "0", "no"):
        return []
    peers = make_peers()
    names = list(peers) if wished in ("1", "all") else [each for each in wished.split(",") if each]
    if strange := [each for each in names if each not in peers]:
        raise SystemExit(f"error: no peer is named {', '.join(strange)}; there are {', '.join(peers)}")
    return names


def run_python(case: Case, place: Place, records: int) -> Figures:
    """A peer that marks its own first and last record, the last one after its commit."""
    script, *options = case.options
    for store in ("cnt-changelog", "__assignor-__leader") if script == "faust_count" else ():
        place.cluster.create(f"{place.tag}-{store}")
    names = (place.cluster.bootstrap, place.tag, place.source, place.target, str(records))
    command = [str(install.python()), "-m", f"tests.benchmarks.peers.{script}", *names]
    with Child([*command, str(place.folder), *options], place.cluster, place.folder / "log") as child:
        first = child.wait_for("first", START_LIMIT_S)
        last = child.wait_for("last", RUN_LIMIT_S)
        child.wait_end()
    return Figures.between(first, last, records)


def run_kafka_streams(case: Case, place: Place, records: int) -> Figures:
    """Kafka Streams, measured from `warm` on: half of the records, after its code was compiled."""
    guarantee, cache_bytes = case.options
    with start_kafka_streams(place, "count", guarantee, cache_bytes, records) as child:
        child.wait_for("first", START_LIMIT_S)
        last = child.wait_for("last", RUN_LIMIT_S)
        warm = child.wait_for("warm", 1.0)
        child.wait_end()
    return Figures.between(warm, last, int(last.facts["seen"] - warm.facts["seen"]))


def start_kafka_streams(place: Place, mode: str, guarantee: str, cache_bytes: str, records: int) -> Child:
    names = (place.cluster.bootstrap, place.tag, place.source, place.target, str(records))
    options = (str(place.folder / "state"), mode, guarantee, cache_bytes)
    return Child([*install.java(), *names, *options], place.cluster, place.folder / "log")


def start_kafka_streams_hop(place: Place, load: Load) -> Child:
    """The same shape as our latency case: a key from the value, a repartition topic, a count."""
    return start_kafka_streams(place, "hop", "exactly_once_v2", "0", load.records)


@functools.cache
def make_peers() -> dict[str, Peer]:
    each, latest = check.counted_each, check.counted_latest

    def python(name: str, verdict: check.Check, share: float, *options: str) -> Case:
        return Case(name, run_python, verdict, share=share, options=options, is_peer=True)

    def jvm(name: str, verdict: check.Check, *options: str) -> Case:
        return Case(name, run_kafka_streams, verdict, share=JVM_SHARE, options=options, is_peer=True)

    return {
        "kafka_streams": Peer(
            install.install_java,
            (
                jvm("kafka_streams_exactly_once", each, "exactly_once_v2", "0"),
                jvm("kafka_streams_at_least_once", each, "at_least_once", "0"),
                jvm("kafka_streams_cached", latest, "exactly_once_v2", str(CACHE_BYTES)),
            ),
        ),
        "quix": Peer(
            install.install_python,
            (
                python("quix_exactly_once", each, QUIX_SHARE, "quix_count", "exactly-once"),
                python("quix_at_least_once", each, QUIX_SHARE, "quix_count", "at-least-once"),
            ),
        ),
        "bytewax": Peer(
            install.install_python,
            (
                python("bytewax", each, BYTEWAX_SHARE, "bytewax_count"),
                python("bytewax_window", check.counted_in_windows, BYTEWAX_SHARE, "bytewax_window"),
            ),
        ),
        "faust": Peer(
            install.install_python, (python("faust_at_least_once", each, FAUST_SHARE, "faust_count"),)
        ),
    }
