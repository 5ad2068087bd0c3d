"""The reference model: what each pipeline must have written, by a plain fold over the input.

Records of one key and source come in order; how those of two sources interleave is free, so the output itself
says which order it took, and every number in it must follow from that order.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import pairwise

from tests.simulation.pipelines import GAP_MS, RECENT, STRANGER, Event, Out, bucket, bucket_end
from tests.simulation.scenario import Scenario

# Of each key, what was written for it: (partition, value), in the order of each partition.
Written = Mapping[str, list[tuple[int, object]]]
Letter = tuple[str, str, int]

# Fates that end among the dead letters.
SET_ASIDE = (
    "undecodable", "raise_early", "raise_late", "unwritable", "too_large", "refused", "stuck", "stuck_late"
)  # fmt: skip

# Acts after which a worker is surely dead before another one has its tasks.
CRASHES = ("kill", "kill_at", "stop", "join", "compact", "lose_disk")


def events(scenario: Scenario) -> list[Event]:
    """Every input record that counts."""
    every = (event for load in scenario.loads for _, event in load.records)
    return [event for event in every if event.fate != "ghost" and event.source != STRANGER]


def good(scenario: Scenario) -> list[Event]:
    """The input records that must have an effect."""
    return [event for event in events(scenario) if event.fate not in ("drop", *SET_ASIDE)]


def letters(scenario: Scenario) -> list[Letter]:
    """The input records that must lie among the dead letters, sorted."""
    if scenario.policy.action == "skip":
        return []
    return sorted(
        (event.source, event.key, event.seq) for event in events(scenario) if event.fate in SET_ASIDE
    )


def check_output(scenario: Scenario, written: Written) -> Iterable[str]:
    """Every way in which the output is not what the input asks for."""
    shape = scenario.shape_of()
    if shape.is_timed and shape.idle_ms is None:
        yield from _check_time(scenario, written)
        return
    expected: dict[str, list[Event]] = {}
    for event in good(scenario):
        expected.setdefault(event.key, []).append(event)
    by_key: dict[str, list[tuple[int, object]]] = {}
    for key, values in written.items():
        for partition, value in values:
            by_key.setdefault(value.key if isinstance(value, Out) else key, []).append((partition, value))
    for key in sorted({*expected, *by_key}):
        values = [value for _, value in by_key.get(key, [])]
        if len({partition for partition, _ in by_key.get(key, [])}) > 1:
            yield f"I2: key {key} was written to several partitions"
        yield from _check_key(scenario.shape, key, expected.get(key, []), values)
    if shape.has_buckets:
        yield from _check_buckets(written)


def check_loose(
    scenario: Scenario, written: Written, got: list[Letter], *, was_put_out: bool
) -> Iterable[str]:
    """What at least once and at most once promise: the former loses nothing, the latter repeats nothing.

    `was_put_out` says that the group has given away tasks of a worker that was alive.
    """
    outs = [value for values in written.values() for _, value in values if isinstance(value, Out)]
    seen = Counter([(out.source, out.key, out.seq) for out in outs])
    wanted = Counter([(event.source, event.key, event.seq) for event in good(scenario)])
    for what, has, should in (
        ("output", seen, wanted),
        ("letters", Counter(got), Counter(letters(scenario))),
    ):
        if strange := sorted(set(has) - set(should)):
            yield f"I1: {what} that nobody asked for: {strange}"
        if scenario.settings.guarantee == "at_least_once" and (lost := sorted(set(should) - set(has))):
            yield f"I1: at least once lost {what} {lost}"
        if scenario.settings.guarantee == "at_most_once" and (more := sorted((has - should).items())):
            yield f"I1: at most once repeated {what} {more}"
    if scenario.settings.guarantee == "at_least_once" and not was_put_out:
        yield from _check_whole_spans(scenario, outs)


def _check_whole_spans(scenario: Scenario, outs: list[Out]) -> Iterable[str]:
    """I3: state and positions go together, even without a transaction: a record that is repeated finds its state again.

    Where records are read from their source alone, and nobody was thought dead who was not: the rows that such a worker
    still writes lie before the next commit record of its successor, and are taken for that span's.
    """
    if scenario.shape != "keyed" or any(action.kind not in CRASHES for action in scenario.actions):
        return
    seqs: dict[str, list[int]] = {}
    for event in good(scenario):
        seqs.setdefault(event.key, []).append(event.seq)
    for out in outs:
        before = seqs[out.key][: seqs[out.key].index(out.seq) + 1]
        n, mark = len(before), before[-2] if len(before) % 2 == 0 else 0
        wanted = (n, before[-2] if n > 1 else 0, sum(before[-RECENT:]), mark)
        if (out.n, out.previous, out.recent, out.mark) != wanted:
            yield f"I3: key {out.key}, record {out.seq}: state {wanted} wanted, {out} got"
            return


def _check_time(scenario: Scenario, written: Written) -> Iterable[str]:
    """I1: every bucket of event time has been told of once, with everything that belongs to it."""
    ends = [bucket_end(event.at) for event in good(scenario)]
    if scenario.shape == "windows":
        ends = [bucket_end(end - 1) for end, n in _sessions(scenario) for _ in range(n)]
    wanted = sorted(Counter(ends).items())
    outs = [value for values in written.values() for _, value in values if isinstance(value, Out)]
    got = sorted((out.seq, out.n) for out in outs)
    if got != wanted:
        yield f"I1: buckets {[pair for pair in wanted if pair not in got]} are missing, {[pair for pair in got if pair not in wanted]} too many"
    if len(got) != len({end for end, _ in got}):
        yield f"I1: some bucket was told of twice: {got}"


def _sessions(scenario: Scenario) -> Iterable[tuple[int, int]]:
    """The sessions of every key: their end, and how many records they hold."""
    times: dict[str, list[int]] = {}
    for event in good(scenario):
        times.setdefault(event.key, []).append(event.at)
    for found in times.values():
        found.sort()
        n = 0
        for at, following in zip(found, [*found[1:], None], strict=True):
            n += 1
            if following is None or following >= at + GAP_MS:
                yield at + GAP_MS, n
                n = 0


def _check_key(shape: str, key: str, events_: list[Event], values: list[object]) -> Iterable[str]:
    if shape == "count":
        if values != list(range(1, len(events_) + 1)):
            yield f"I1 I3: key {key} had {len(events_)} records and counts {values}"
    elif shape == "latest":
        last = values[-1] if values else 0
        if last != len(events_) or any(a >= b for a, b in pairwise(values)):  # type: ignore[operator]
            yield f"I1 I3: key {key} had {len(events_)} records and latest counts {values}"
    else:
        outs = [value for value in values if isinstance(value, Out)]
        yield from _check_order(key, events_, outs)
        if shape not in ("stateless", "sleepers", "sleepers_of_two"):
            yield from _check_tally(key, outs)


def _check_order(key: str, events_: list[Event], outs: list[Out]) -> Iterable[str]:
    """I1 and I2: each record once, in the order of its source."""
    for source in sorted({event.source for event in events_} | {out.source for out in outs}):
        wanted = [event.seq for event in events_ if event.source == source]
        got = [out.seq for out in outs if out.source == source]
        if got != wanted:
            yield f"I1 I2: key {key} of {source}: wanted {wanted}, got {got}"


def _check_tally(key: str, outs: list[Out]) -> Iterable[str]:
    """I3 and I4: at every record the state was exactly what the records before it had left."""
    last: dict[str, int] = {}
    seqs: list[int] = []
    for n, out in enumerate(outs, 1):
        seqs.append(out.seq)
        mark = seqs[-2] if n % 2 == 0 else 0
        wanted = (n, last.get(out.source, 0), sum(seqs[-RECENT:]), mark)
        if (out.n, out.previous, out.recent, out.mark) != wanted:
            yield f"I3 I4: key {key}, record {out.seq}: state {wanted} wanted, {out} got"
            return
        last[out.source] = out.seq


def _check_buckets(written: Written) -> Iterable[str]:
    for name in sorted(written):
        outs = [value for _, value in written[name] if isinstance(value, Out)]
        if [out.m for out in outs] != list(range(1, len(outs) + 1)):
            yield f"I3: bucket {name} counts {[out.m for out in outs]}"
        if any(bucket(out.key) != name for out in outs):
            yield f"I1: bucket {name} holds other buckets' records"
