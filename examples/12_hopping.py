"""Hopping windows overlap: the last minute, looked at every twenty seconds. A record counts in each that holds it."""

import msgspec

import streamkit as sk
from streamkit.testing import Harness


class Request(msgspec.Struct):
    """A request to a server, and how long it took."""

    server: str
    at: int
    took_ms: int


class Slowest(msgspec.Struct):
    """The slowest request of a minute."""

    server: str
    until: str
    took_ms: int


def slowest(server: str, window: sk.Window, took_ms: int) -> Slowest:
    """Made of the key, the window and the largest value in it."""
    return Slowest(server, f"{window.end_time:%M:%S}", took_ms)


requests = sk.topic("requests", Request, time="at")
peaks = sk.topic("peaks", Slowest)
watching = sk.pipeline("watching")
(
    watching.read(requests)
    .key_by(lambda request: request.server)
    .window(sk.hopping(sk.minutes(1), sk.seconds(20)))
    .max(lambda request: request.took_ms, into=slowest)
    .write(peaks)
)


def main() -> None:
    """One slow request is in three windows."""
    with Harness(watching, partitions=1) as harness:
        harness.send(requests, Request("a", 45_000, 900), Request("a", 70_000, 30), Request("a", 130_000, 20))
        harness.run()
        for each in harness.read(peaks):
            print(f"the minute until {each.until}: {each.took_ms} ms")


if __name__ == "__main__":
    main()
