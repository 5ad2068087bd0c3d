"""The measured pipelines, as a user would write them."""

from collections.abc import Callable

import msgspec

import streamkit as sk
from streamkit.model.duration import seconds
from streamkit.windows import tumbling

WINDOW_S = 10


class Hit(msgspec.Struct):
    user: str
    item: str
    price: float
    ts: int
    pad: str


class Sale(msgspec.Struct):
    user: str
    item: str
    total: float


def stateless(name: str, source: str, target: str) -> sk.Pipeline:
    def to_sale(hit: Hit) -> Sale:
        return Sale(hit.user, hit.item, hit.price * 2)

    pipeline = sk.pipeline(name)
    pipeline.read(sk.topic(source, Hit)).map(to_sale).write(sk.topic(target, Sale))
    return pipeline


def count(name: str, source: str, target: str) -> sk.Pipeline:
    pipeline = sk.pipeline(name)
    hits = pipeline.read_keyed(sk.topic(source, Hit))
    hits.count(name="per_key").map(lambda n: {"c": n}, to=dict).write(sk.topic(target, dict))
    return pipeline


def count_latest(name: str, source: str, target: str) -> sk.Pipeline:
    pipeline = sk.pipeline(name)
    hits = pipeline.read_keyed(sk.topic(source, Hit))
    hits.count(name="per_key", updates="latest").map(lambda n: {"c": n}, to=dict).write(
        sk.topic(target, dict)
    )
    return pipeline


def window(name: str, source: str, target: str) -> sk.Pipeline:
    pipeline = sk.pipeline(name)
    windows = pipeline.read_keyed(sk.topic(source, Hit)).window(tumbling(seconds(WINDOW_S)))
    counts = windows.count(name="per_key", into=lambda _, window, n: {"w": window.start, "c": n}, to=dict)
    counts.write(sk.topic(target, dict))
    return pipeline


def shuffled_count(name: str, source: str, target: str) -> sk.Pipeline:
    pipeline = sk.pipeline(name)
    per_user = pipeline.read(sk.topic(source, Hit)).key_by(lambda hit: hit.user, key_type=str)
    per_user.count(name="per_user").map(lambda n: {"c": n}, to=dict).write(sk.topic(target, dict))
    return pipeline


PIPELINES: dict[str, Callable[[str, str, str], sk.Pipeline]] = {
    "stateless": stateless,
    "count": count,
    "count_latest": count_latest,
    "shuffled_count": shuffled_count,
    "window": window,
}
