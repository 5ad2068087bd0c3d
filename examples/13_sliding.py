"""Sliding windows look back from each record: did a card pay more than 500 within ten seconds?

They move with the records, so nothing is cut in two at a full minute. With emit="update" nobody waits for the end.
"""

import msgspec

import streamkit as sk
from streamkit.testing import Harness


class Payment(msgspec.Struct):
    """A card paid."""

    card: str
    at: int
    amount: int


class Alarm(msgspec.Struct):
    """So much was paid in the ten seconds up to this one."""

    card: str
    until: int
    amount: int


def total(card: str, window: sk.Window, amount: int) -> Alarm:
    """Both ends belong to the window."""
    return Alarm(card, window.max_timestamp, amount)


payments = sk.topic("payments", Payment, time="at")
alarms = sk.topic("alarms", Alarm)
guard = sk.pipeline("guard")
(
    guard.read(payments)
    .key_by(lambda payment: payment.card)
    .window(sk.sliding(sk.seconds(10)))
    .sum(lambda payment: payment.amount, into=total, emit="update")
    .filter(lambda alarm: alarm.amount > 500)
    .write(alarms)
)


def main() -> None:
    """The second and third payment are close together, the first is long ago."""
    with Harness(guard, partitions=1) as harness:
        for at, amount in ((1_000, 400), (59_000, 300), (61_000, 350)):
            harness.send(payments, Payment("4711", at, amount))
        harness.run()
        for each in harness.read(alarms):
            print(f"card {each.card}: {each.amount} by {each.until} ms")


if __name__ == "__main__":
    main()
