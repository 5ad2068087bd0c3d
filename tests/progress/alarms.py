"""A small pipeline with timers that the tests of event time share."""

from typing import Any

import msgspec

import streamkit as sk
from streamkit.codec.signals import decode_signal
from streamkit.graph.stream import Keyed
from streamkit.model.keys import kafka_partition
from streamkit.model.signal import Signal
from streamkit.testing import Harness


class Order(msgspec.Struct):
    """What an `Alarms` operator should do: have timers and cancel some, in event time or so many ms from now."""

    at: int
    alarm: str = "a"
    set: list[int] = []
    cancel: list[int] = []
    set_in: list[int] = []
    cancel_in: list[int] = []


ORDERS = sk.topic("orders", Order, time="at")
RINGS = sk.topic("rings", str)


class Alarms(sk.Operator[str, Order, str]):
    """Sets the timers that it is told to; says `<key>@<time>` for every one that fires, and how many did before."""

    rung = sk.value(int, 0)

    def on_record(self, value: Order, ctx: sk.Context[str, str]) -> None:
        for time in value.set:
            ctx.set_timer(time)
        for time in value.cancel:
            ctx.cancel_timer(time)
        for ms in value.set_in:
            ctx.set_timer(ctx.now + ms, clock="processing")
        for ms in value.cancel_in:
            ctx.cancel_timer(ctx.now + ms, clock="processing")

    def on_timer(self, timer: Any, ctx: sk.Context[str, str]) -> None:
        self.rung.set(self.rung.get() + 1)
        ctx.emit(f"{ctx.key}@{timer.time}")


def alarm_of(order: Order) -> str:
    return order.alarm


def ringing(
    operator: sk.Operator[str, Order, str] | None = None,
    *,
    topic: sk.Topic[Order] = ORDERS,
    shuffles: int = 0,
    until: Any = None,
    name: str = "alarms",
    **options: Any,
) -> sk.Pipeline:
    """read -> as many shuffles -> alarms -> write."""
    pipeline = sk.pipeline(name, **options)
    keyed: Keyed[str, Order] = pipeline.read_keyed(topic, until=until)
    for number in range(shuffles):
        keyed = keyed.key_by(alarm_of, name=f"by_alarm_{number}")
    keyed.process(operator or Alarms(), name="alarms").write(RINGS)
    return pipeline


def key_on(partition: int, partitions: int = 4) -> str:
    """A key that Kafka puts on this partition."""
    return next(
        key for key in map(str, range(1000)) if kafka_partition(key.encode(), partitions) == partition
    )


def raw(harness: Harness, topic: str) -> list[Any]:
    """All records of a topic since the last look, as bytes."""
    return harness._do(harness._records(topic, lambda value: value, lambda key: key))


def signals(harness: Harness, topic: str) -> list[tuple[int, int, Signal]]:
    """The signals among them: partition, channel, signal."""
    return [
        (record.partition, sent.channel, sent.signal)
        for record in raw(harness, topic)
        if record.key is None
        for sent in [decode_signal(record.value)]
    ]


def shuffle_topics(pipeline: sk.Pipeline) -> list[str]:
    return list(pipeline.plan().shuffles())
