"""The judge: reads the whole output of a case, read_committed, and accepts only what is exactly right."""

from collections import Counter
from collections.abc import Callable

import orjson

from tests.benchmarks import prefill
from tests.benchmarks.cluster import Cluster
from tests.benchmarks.pipelines import WINDOW_S

WINDOW_MS = WINDOW_S * 1000
SHOWN = 3  # wrong keys or values named in an error

# (cluster, output topic, records of the input, keys of the input)
Check = Callable[[Cluster, str, int, int], None]


class WrongOutput(Exception):
    """The output is not what the input makes of it; a figure for it would mean nothing."""


def copied(cluster: Cluster, topic: str, records: int, keys: int) -> None:
    """Every value as often as it went in, and every key too."""
    _compare_values(cluster, topic, records, keys, lambda value: value)


def mapped(cluster: Cluster, topic: str, records: int, keys: int) -> None:
    """As `copied`, with the values that the stateless pipeline makes."""
    _compare_values(cluster, topic, records, keys, _sale)


def counted_each(cluster: Cluster, topic: str, records: int, keys: int) -> None:
    """Every key counts 1, 2, 3 ... without a gap, a repetition or a step back, up to its share of the input."""
    _require_counts(cluster, topic, dict.fromkeys(map(prefill.key, range(keys)), records // keys))


def counted_by_user(cluster: Cluster, topic: str, records: int, keys: int) -> None:
    """As `counted_each`, by the user in the value: the key behind a shuffle."""
    wanted: dict[bytes, int] = {}
    for number, value in enumerate(prefill.values()):
        user = orjson.loads(value)["user"].encode()
        share = records // prefill.VALUES + (number < records % prefill.VALUES)
        wanted[user] = wanted.get(user, 0) + share
    _require_counts(cluster, topic, wanted)


def _require_counts(cluster: Cluster, topic: str, wanted: dict[bytes, int]) -> None:
    last: dict[bytes, int] = {}
    seen = 0
    for messages in cluster.read(topic):
        for message in messages:
            key, count = message.key(), orjson.loads(message.value())["c"]
            if count != last.get(key, 0) + 1:
                raise WrongOutput(f"{topic}: key {key!r} goes from {last.get(key, 0)} to {count}")
            last[key] = count
        seen += len(messages)
    _require_final(topic, last, wanted)
    if seen != sum(wanted.values()):
        raise WrongOutput(f"{topic}: {seen} outputs for {sum(wanted.values())} records")


def counted_latest(cluster: Cluster, topic: str, records: int, keys: int) -> None:
    """Every key only grows, and ends at its share of the input."""
    last: dict[bytes, int] = {}
    for messages in cluster.read(topic):
        for message in messages:
            key, count = message.key(), orjson.loads(message.value())["c"]
            if count <= last.get(key, 0):
                raise WrongOutput(f"{topic}: key {key!r} goes from {last.get(key, 0)} to {count}")
            last[key] = count
    _require_final(topic, last, dict.fromkeys(map(prefill.key, range(keys)), records // keys))


def counted_in_windows(cluster: Cluster, topic: str, records: int, keys: int) -> None:
    """Every window of every key once and with its count; those that the input has not closed may be missing."""
    wanted = _windows(records, keys)
    got: set[tuple[bytes, int]] = set()
    for messages in cluster.read(topic):
        for message in messages:
            result = orjson.loads(message.value())
            place = message.key(), result["w"]
            if place in got or wanted.get(place) != result["c"]:
                raise WrongOutput(
                    f"{topic}: window {place} has {result['c']}, wanted {wanted.get(place)} once"
                )
            got.add(place)
    # The slowest partition has come so far: its last record is one of the last round of keys.
    closed_until = prefill.event_time(records - keys) - 1
    missing = [place for place in wanted if place not in got and place[1] + WINDOW_MS <= closed_until]
    if missing:
        raise WrongOutput(f"{topic}: {len(missing)} windows are missing: {sorted(missing)[:SHOWN]}")


def _windows(records: int, keys: int) -> dict[tuple[bytes, int], int]:
    counts: Counter[tuple[int, int]] = Counter()
    for i in range(records):
        counts[i % keys, prefill.event_time(i) // WINDOW_MS * WINDOW_MS] += 1
    return {(prefill.key(number), start): count for (number, start), count in counts.items()}


def _require_final(topic: str, last: dict[bytes, int], wanted: dict[bytes, int]) -> None:
    if last != wanted:
        wrong = [each for each in wanted.keys() | last.keys() if last.get(each) != wanted.get(each)]
        shown = {each: (last.get(each), wanted.get(each)) for each in sorted(wrong)[:SHOWN]}
        raise WrongOutput(f"{topic}: {len(wrong)} keys end wrong, (got, wanted): {shown}")


def _compare_values(
    cluster: Cluster, topic: str, records: int, keys: int, made: Callable[[bytes], bytes]
) -> None:
    values: Counter[bytes] = Counter()
    names: Counter[bytes] = Counter()
    for messages in cluster.read(topic):
        values.update([message.value() for message in messages])
        names.update([message.key() for message in messages])
    wanted: Counter[bytes] = Counter()
    for number, value in enumerate(prefill.values()):
        wanted[made(value)] += records // prefill.VALUES + (number < records % prefill.VALUES)
    if values != wanted:
        wrong = [each for each in wanted | values if values[each] != wanted[each]]
        shown = {each: (values[each], wanted[each]) for each in sorted(wrong)[:SHOWN]}
        raise WrongOutput(f"{topic}: {len(wrong)} values are not as often there as in the input: {shown}")
    if names != Counter({prefill.key(number): records // keys for number in range(keys)}):
        raise WrongOutput(f"{topic}: the keys are not as often there as in the input")


def _sale(value: bytes) -> bytes:
    hit = orjson.loads(value)
    return orjson.dumps({"user": hit["user"], "item": hit["item"], "total": hit["price"] * 2})
