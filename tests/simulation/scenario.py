"""A scenario: everything that a seed decides before the run begins. Plain data, so that it can be printed."""

from collections.abc import Iterator
from random import Random
from typing import Any, Literal

import msgspec

from streamkit.config import GuaranteeName, Settings
from streamkit.graph.policy import ErrorPolicy, dead_letter, skip
from streamkit.model.keys import kafka_partition
from streamkit.testing.memory.batch import BATCH_BYTES_MAX
from tests.simulation.families import Family, family_of
from tests.simulation.garbage import GarbageKind
from tests.simulation.in_place import IN_PLACE_SHAPES
from tests.simulation.lists import LIST_SHAPES
from tests.simulation.pipelines import (
    FLAKES,
    LATE_MS,
    SHAPES,
    SIDE,
    SLEEPY_SHAPES,
    TIMED_SHAPES,
    Event,
    Fate,
    Out,
    Shape,
)

ActionKind = Literal[
    "kill", "kill_at", "freeze", "freeze_at", "cut", "storm", "stop", "join", "compact", "lose_disk", "forget",
    "forget_at", "forge",
]  # fmt: skip
# How an input batch is written: by itself, in a transaction that commits, in one that is aborted, or so that nobody reads it.
Manner = Literal["plain", "committed", "aborted"] | GarbageKind

# How many of the seeds have a broker that starts anew, and forgets markers then.
FORGETFUL_SHARE = 0.4
# How many of the seeds may hand records over in memory.
LOCAL_SHARE = 0.6
# Event time begins here, and passes ten times as quickly as the clock on the wall.
EPOCH_MS = 1_600_000_000_000
PACE = 10
HOUR_MS = 3_600_000
# What a record that only brings event time to its end is ahead of all others.
FLUSH_MS = 60_000

# Where a worker may be killed or stopped to the request: before it leaves, or after it arrived.
TRAPS = (
    "writer.open",
    "writer.produce",
    "writer.positions",
    "writer.end",
    "writer.end",
    "reader.fetch",
    "member.join",
    "member.join",
    "member.sync",
    "admin.positions",
    "admin.end_offsets",
    "transactions.end",
    "admin.start_offsets",
)
KINDS: tuple[ActionKind, ...] = (
    "kill", "kill", "kill_at", "kill_at", "kill_at", "freeze", "freeze_at", "freeze_at", "cut", "storm", "storm",
    "stop", "join", "compact", "lose_disk",
)  # fmt: skip


class Bias(msgspec.Struct, frozen=True):
    """A thumb on the scales of chance: what it takes for a certain fault to strike soon."""

    kinds: tuple[ActionKind, ...] = KINDS
    traps: tuple[str, ...] = TRAPS
    shapes: tuple[str, ...] = ()
    acts: tuple[int, ...] = (0, 1, 2, 4, 8, 12)
    is_forgetful: bool = False
    is_cleaned: bool = False
    workers_max: int = 4
    settings: dict[str, Any] = {}


FAIR = Bias()


class Action(msgspec.Struct, frozen=True):
    """One thing that the nemesis does."""

    at_s: float
    kind: ActionKind
    worker: int
    lasts_s: float
    trap: str
    after: bool
    chances: tuple[float, float, float]


class ClockStep(msgspec.Struct, frozen=True):
    """Somebody sets the clock on the wall of one worker's host."""

    at_s: float
    worker: int
    by_ms: int


class Load(msgspec.Struct, frozen=True):
    """Records that are written together to one partition of one source."""

    at_s: float
    topic: str
    partition: int
    manner: Manner
    records: tuple[tuple[str, Event], ...]


class Growth(msgspec.Struct, frozen=True):
    """A source gets more partitions: so many, from then on."""

    at_s: float
    topic: str
    partitions: int


class Scenario(msgspec.Struct, frozen=True):
    """What happens in one run."""

    seed: int
    shape: str
    partitions: dict[str, int]
    shuffle_partitions: int | None
    workers: int
    policy: ErrorPolicy
    settings: Settings
    fetch_bytes_max: int
    delay_s_max: float
    marker_delay_s_max: float
    survives: Literal["all", "some", "none"]
    batch_bytes_max: int
    disk_delay_s_max: float
    # What a record of a fate takes; empty if nothing takes time.
    work_s: dict[str, float]
    loads: tuple[Load, ...]
    actions: tuple[Action, ...]
    # From when on workers start with the new version.
    deployed_at_s: float | None = None
    clock_steps: tuple[ClockStep, ...] = ()
    growths: tuple[Growth, ...] = ()
    # None: the log cleaner keeps them for ever.
    tombstones_kept_s: float | None = None

    def shape_of(self) -> Shape:
        """The kind of pipeline."""
        return next(
            shape
            for shape in (*SHAPES, *TIMED_SHAPES, *SLEEPY_SHAPES, *IN_PLACE_SHAPES, *LIST_SHAPES)
            if shape.name == self.shape
        )


def stream(seed: int, name: str) -> Random:
    """A source of chance of its own for every use, so that a change in one does not move the others."""
    return Random(f"{seed}:{name}")


def draw(seed: int, bias: Bias = FAIR) -> Scenario:
    """The scenario of a seed."""
    chance = stream(seed, "scenario")
    shape = chance.choice([shape for shape in _shapes(seed) if not bias.shapes or shape.name in bias.shapes])
    partitions = {name: chance.randint(1, 6) for name in (*shape.sources, "out")}
    deployed = stream(seed, "deploy") if family_of(seed) is Family.DEPLOYED else None
    retries = chance.choice((0, 0, FLAKES))
    make = chance.choice((dead_letter, dead_letter, skip))
    settings = _settings(chance, _guarantee(seed), is_local=stream(seed, "local").random() < LOCAL_SHARE)
    flush_interval_s = stream(seed, "flush").choice((0.2, 60.0))
    settings = msgspec.structs.replace(settings, state_flush_interval_s=flush_interval_s)
    settings = msgspec.structs.replace(settings, **bias.settings)
    work_s = _work_s(seed, settings)
    settings = msgspec.structs.replace(settings, **_room_for(work_s))
    span_s = chance.uniform(0.8, 3.0)
    return Scenario(
        seed=seed,
        shape=shape.name,
        partitions=partitions
        | ({} if deployed is None else {SIDE: deployed.randint(1, 4), f"{SIDE}-counts": 1}),
        shuffle_partitions=chance.choice((None, None, 1, 2, 3, 5)),
        workers=chance.randint(1, bias.workers_max),
        policy=make(retries=retries, delay_s=chance.choice((0.01, 0.1))),
        settings=settings,
        fetch_bytes_max=chance.choice((100, 400, 2000, 1 << 20)),
        delay_s_max=chance.choice((0.0005, 0.002, 0.01, 0.03)),
        marker_delay_s_max=chance.choice((0.0, 0.01, 0.2, 0.5)),
        survives=chance.choice(("all", "some", "some", "none")),
        batch_bytes_max=_batch_bytes_max(seed),
        disk_delay_s_max=stream(seed, "disk").choice((0.0, 0.003, 0.05)),
        work_s=work_s,
        loads=_loads(seed, shape, partitions, span_s, flaky=retries >= FLAKES),
        actions=tuple(
            sorted(
                (
                    *_actions(stream(seed, "nemesis"), bias, settings, span_s),
                    *_forgetting(stream(seed, "forgetting"), bias, settings, span_s),
                ),
                key=lambda action: action.at_s,
            )
        ),
        deployed_at_s=None if deployed is None else deployed.uniform(0.1, span_s),
        clock_steps=_clock_steps(stream(seed, "clocks"), span_s) if shape.is_timed else (),
    )


def _work_s(seed: int, settings: Settings) -> dict[str, float]:
    """What records take: slow ones outlast a session together, long ones alone, and stuck ones their limit."""
    if family_of(seed) is not Family.SLOW:
        return {}
    chance, session_s = stream(seed, "work"), settings.session_timeout_s
    limit_s = 4 * session_s
    return {
        "slow": chance.choice((0.005, 0.03, 0.1)),
        "long": session_s * chance.uniform(1.2, 2.0),
        "limit": limit_s,
        "stuck": chance.choice((1.5, 1.5, 1000.0)) * limit_s,
    }


def _room_for(work_s: dict[str, float]) -> dict[str, float]:
    """Settings with which such work can be done: a round waits for whoever has a record in hand."""
    if not work_s:
        return {}
    return {"processing_max_s": work_s["limit"], "rebalance_timeout_s": 2 * work_s["limit"]}


def _slow_fates(seed: int, shape: Shape) -> list[Fate]:
    if family_of(seed) is not Family.SLOW:
        return []
    chance = stream(seed, "slow fates")
    fates: list[Fate] = ["slow"] * chance.choice((5, 30, 100)) + ["long"] * 2
    fates += chance.choice((["stuck"], ["stuck_late"] if shape.fails_late else ["stuck"], []))
    return fates


def _shapes(seed: int) -> tuple[Shape, ...]:
    every = (*SHAPES, *TIMED_SHAPES)
    in_full = tuple(shape for shape in SHAPES if shape.out is Out)
    by_family = {
        Family.TIMED: TIMED_SHAPES,
        Family.SLEEPY: SLEEPY_SHAPES,
        Family.LOOSE: in_full,
        Family.FAILING: tuple(shape for shape in every if shape.fails_late),
        Family.SLOW: every,
        # Most of what is forged does harm only to event time.
        Family.HOSTILE: (*every, *TIMED_SHAPES * 2, *IN_PLACE_SHAPES * 2),
        Family.LISTS: LIST_SHAPES,
        # One result for each record, which says of which.
        Family.REFUSING: tuple(shape for shape in in_full if shape.name != "two_shuffles"),
    }
    return by_family.get(family_of(seed), SHAPES)


def _guarantee(seed: int) -> GuaranteeName:
    chance = stream(seed, "guarantee")
    if family_of(seed) is Family.LOOSE:
        return chance.choice(("at_least_once", "at_most_once"))
    if family_of(seed) is Family.REFUSING:
        return chance.choice(("exactly_once", "exactly_once", "at_least_once"))
    return "exactly_once"


def _batch_bytes_max(seed: int) -> int:
    """Small ones where no transaction holds several together, for a crash may come between any two; and commits of many."""
    if family_of(seed) not in (Family.LOOSE, Family.DEPLOYED):
        return BATCH_BYTES_MAX
    return stream(seed, "batches").choice((1, 200, BATCH_BYTES_MAX))


def _settings(chance: Random, guarantee: GuaranteeName, *, is_local: bool) -> Settings:
    session_s = chance.choice((0.3, 0.6, 1.2))
    return Settings(
        store="memory",
        guarantee=guarantee,
        local_shuffle=is_local,
        commit_interval_s=chance.choice((0.0003, 0.01, 0.2)),
        commit_pause_s=chance.choice((0.0, 0.005, 0.05)),
        slice_records=chance.choice((1, 2, 5, 100)),
        session_timeout_s=session_s,
        rebalance_timeout_s=session_s * chance.choice((1.5, 3.0)),
        transaction_timeout_s=chance.choice((1.0, 3.0, 8.0)),
        request_timeout_s=chance.choice((0.15, 0.5, 1.0)),
        memory_bytes=chance.choice((0, 5_000, 1 << 20)),
        state_apply_interval_s=chance.choice((0.0, 0.3)),
        restart_delay_first_s=0.05,
        restart_delay_last_s=1.0,
    )


def _fates(chance: Random, seed: int, shape: Shape, *, flaky: bool) -> list[Fate]:
    """What becomes of a record, by chance."""
    fates: list[Fate] = ["fine"] * chance.choice((10, 30, 100)) + ["drop", "undecodable", "raise_early"]
    if shape.fails_late:
        fates += ["raise_late"] + ["flaky"] * 2 * flaky
    fates += _slow_fates(seed, shape)
    if family_of(seed) is Family.REFUSING:
        fates += ["refused"]
    if shape.fails_late and family_of(seed) in (Family.FAILING, Family.HOSTILE, Family.LISTS):
        fates += ["raise_late"] * chance.choice((5, 30, 200))
        fates += ["unwritable", "too_large"] * (chance.choice((1, 5)) if shape.spoils else 0)
    return fates


def _loads(
    seed: int, shape: Shape, partitions: dict[str, int], span_s: float, *, flaky: bool
) -> tuple[Load, ...]:
    """The input, in order of time; records of one key stay in order."""
    chance = stream(seed, "load")
    fates = _fates(chance, seed, shape, flaky=flaky)
    burst = chance.choice((3, 8, 30))
    keys = [f"k{number}" for number in range(chance.randint(1, 8))]
    seqs: dict[tuple[str, str], int] = {}
    loads = []
    for at_s in sorted(chance.uniform(0.0, span_s) for _ in range(chance.randint(4, 100 // burst + 6))):
        topic = chance.choice(shape.sources)
        manner: Manner = chance.choice(("plain", "plain", "plain", "committed", "aborted"))
        by_partition: dict[int, list[tuple[str, Event]]] = {}
        for _ in range(chance.randint(1, burst)):
            key = chance.choice(keys)
            fate = chance.choice(fates) if manner != "aborted" else "ghost"
            if fate != "ghost":
                seqs[topic, key] = seqs.get((topic, key), 0) + 1
            at = EPOCH_MS + int(at_s * 1000 * PACE) + chance.randrange(LATE_MS) if shape.is_timed else 0
            event = Event(topic, key, seqs.get((topic, key), 0), fate, at)
            by_partition.setdefault(kafka_partition(key.encode(), partitions[topic]), []).append((key, event))
        loads += [Load(at_s, topic, at, manner, tuple(records)) for at, records in by_partition.items()]
    return (*loads, *_flush(shape, partitions, span_s))


def _flush(shape: Shape, partitions: dict[str, int], span_s: float) -> Iterator[Load]:
    """The last record of every partition, which the pipeline drops: all it does is bring event time to its end."""
    if shape.is_timed:
        last = Event("", "k0", 0, "drop", EPOCH_MS + int(span_s * 1000 * PACE) + FLUSH_MS)
        for topic in shape.sources:
            for partition in range(partitions[topic]):
                yield Load(span_s, topic, partition, "plain", (("k0", last),))


def _actions(chance: Random, bias: Bias, settings: Settings, span_s: float) -> tuple[Action, ...]:
    """The nemesis: none at all in some runs, a dozen acts in others."""
    session_s = settings.session_timeout_s
    actions = []
    for at_s in sorted(chance.uniform(0.0, span_s + 0.5) for _ in range(chance.choice(bias.acts))):
        kind = chance.choice(bias.kinds)
        scale = chance.choice((session_s, settings.rebalance_timeout_s)) * chance.uniform(0.3, 2.5)
        actions.append(
            Action(
                at_s=at_s,
                kind=kind,
                worker=chance.randrange(8),
                lasts_s=scale if kind in ("freeze", "freeze_at", "cut") else chance.uniform(0.02, 1.5),
                trap=chance.choice(bias.traps),
                after=chance.random() < 0.5,
                chances=_chances(chance),
            )
        )
    return tuple(actions)


def _forgetting(chance: Random, bias: Bias, settings: Settings, span_s: float) -> Iterator[Action]:
    """A broker that starts anew, most often right after the end of a transaction, and what it forgets then."""
    if settings.guarantee == "exactly_once" and (chance.random() < FORGETFUL_SHARE or bias.is_forgetful):
        for _ in range(chance.choice((1, 2, 4, 8))):
            yield Action(
                at_s=chance.uniform(0.0, span_s + 0.3),
                kind=chance.choice(("forget", "forget_at", "forget_at", "forget_at")),
                worker=chance.randrange(8),
                lasts_s=0.0,
                trap=chance.choice(
                    ("writer.end", "writer.end", "writer.end", "transactions.end", "transactions.end_left")
                ),
                after=True,
                # Of forgetting a marker of a partition, and one of positions; and of killing the worker with it.
                chances=chance.choice(
                    ((1.0, 1.0, 0.5), (0.5, 0.5, 0.5), (0.3, 0.3, 0.2), (0.0, 1.0, 0.5), (0.9, 0.0, 0.0))
                ),
            )


def _clock_steps(chance: Random, span_s: float) -> tuple[ClockStep, ...]:
    """Clocks that are set back and forth, by a little or by an hour, in some runs."""
    times = sorted(chance.uniform(0.0, span_s + 0.5) for _ in range(chance.choice((0, 0, 1, 2, 5))))
    sizes = (50, 1_000, HOUR_MS, HOUR_MS)
    return tuple(
        ClockStep(at_s, chance.randrange(8), chance.choice(sizes) * chance.choice((-1, -1, 1)))
        for at_s in times
    )


def _chances(chance: Random) -> tuple[float, float, float]:
    """Of a request being lost, of its reply being lost, of its arriving too late."""
    weight = chance.choice((0.03, 0.1, 0.3))
    return (weight * chance.random(), weight * chance.random(), weight * chance.random())
