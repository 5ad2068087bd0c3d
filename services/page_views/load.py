"""Visitors: writes page views at a steady rate, and says at the end what the broker has acknowledged.

    python -m services.page_views.load --rate 2000 --seconds 60

A few pages get most of the visits, and one visitor in twelve is a bot. SIGTERM or Ctrl-C ends it early and cleanly.
"""

import argparse
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Sequence
from itertools import accumulate

import msgspec
from confluent_kafka import KafkaError, Message, Producer

from services.page_views.pipeline import VIEWS, PageView

PAGES = (
    *("/", "/search", "/cart", "/checkout", "/account", "/offers", "/help", "/about", "/jobs", "/press"),
    *(f"/articles/{number}" for number in range(1, 31)),
)
# Zipf's law: the page of rank n is opened 1/n times as often as the first one.
WEIGHTS = tuple(accumulate(1 / rank for rank in range(1, len(PAGES) + 1)))
USERS = (*(f"user-{number:03}" for number in range(440)), *(f"bot-{number:02}" for number in range(40)))

# Records are written this many times per second; in between the producer sleeps.
TICKS_PER_S = 50
FLUSH_TIMEOUT_S = 30.0


class Sent(msgspec.Struct, frozen=True, kw_only=True):
    """What was written: `acknowledged` is what the broker has confirmed, `failed` what it has refused."""

    topic: str
    sent: int
    acknowledged: int
    failed: int
    bots: int
    seconds: float


def make_views(count: int, choose: random.Random) -> list[PageView]:
    """Views that happen now."""
    now_ms = time.time_ns() // 1_000_000
    pages = choose.choices(PAGES, cum_weights=WEIGHTS, k=count)
    return [
        PageView(user, page, now_ms) for user, page in zip(choose.choices(USERS, k=count), pages, strict=True)
    ]


class Load:
    """One producer and what became of its records."""

    def __init__(self, brokers: str, topic: str, seed: int | None) -> None:
        self._topic = topic
        self._choose = random.Random(seed)  # noqa: S311 - visitors, not secrets
        # Idempotent, so that a retry of ours is never taken for a mistake of the pipeline.
        self._producer = Producer(
            {
                "bootstrap.servers": brokers,
                "enable.idempotence": True,
                "linger.ms": 10,
                "partitioner": "murmur2_random",
            }
        )
        self._sent = self._acknowledged = self._failed = self._bots = 0

    def run(self, rate: float, seconds: float, ended: threading.Event) -> Sent:
        """Write `rate` views per second for so many seconds, or until `ended` is set."""
        began = time.monotonic()
        while not ended.is_set() and (passed_s := time.monotonic() - began) < seconds:
            self._send(int(rate * passed_s) - self._sent)
            self._producer.poll(0)
            ended.wait(1 / TICKS_PER_S)
        if not ended.is_set():
            self._send(int(rate * seconds) - self._sent)
        self._producer.flush(FLUSH_TIMEOUT_S)
        return Sent(
            topic=self._topic,
            sent=self._sent,
            acknowledged=self._acknowledged,
            failed=self._failed,
            bots=self._bots,
            seconds=round(time.monotonic() - began, 1),
        )

    def _send(self, count: int) -> None:
        for view in make_views(count, self._choose):
            self._producer.produce(
                self._topic,
                msgspec.json.encode(view),
                view.user,
                timestamp=view.at,
                on_delivery=self._delivered,
            )
            self._sent += 1
            self._bots += view.user.startswith("bot-")

    def _delivered(self, error: KafkaError | None, _message: Message) -> None:
        if error is None:
            self._acknowledged += 1
        else:
            self._failed += 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from the command line; the report is one line of JSON on standard output."""
    parser = argparse.ArgumentParser(
        prog="python -m services.page_views.load", description="Write page views."
    )
    parser.add_argument("--rate", type=float, default=2000, help="records per second (2000)")
    parser.add_argument("--seconds", type=float, default=60, help="for how long (60)")
    parser.add_argument("--brokers", default=os.environ.get("STREAMKIT_BROKERS", "127.0.0.1:9092"))
    parser.add_argument("--topic", default=VIEWS.name, help=f"where to write ({VIEWS.name})")
    parser.add_argument("--seed", type=int, default=None, help="the same visitors again")
    given = parser.parse_args(arguments)
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    sent = Load(given.brokers, given.topic, given.seed).run(given.rate, given.seconds, ended)
    sys.stdout.write(msgspec.json.encode(sent).decode() + "\n")
    return 0 if sent.acknowledged == sent.sent else 1


if __name__ == "__main__":
    sys.exit(main())
