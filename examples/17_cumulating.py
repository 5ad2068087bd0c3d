"""Cumulating windows: the revenue of the day so far, every six hours. They begin together and end one after the other.

`window_all` puts all records together, whatever their key; one task does it.
"""

import msgspec

import streamkit as sk
from streamkit.testing import Harness

HOUR_MS = 3_600_000


class Sale(msgspec.Struct):
    """Something was sold."""

    at: int
    amount: int


class SoFar(msgspec.Struct):
    """What the day had brought by this hour."""

    by: str
    amount: int


def so_far(_: str, window: sk.Window, amount: int) -> SoFar:
    """All windows of a day have the same start."""
    return SoFar(f"{window.end_time:%d %H:%M}", amount)


sales = sk.topic("sales", Sale, time="at")
revenue = sk.topic("revenue", SoFar)
business = sk.pipeline("business")
(
    business.read(sales)
    .window_all(sk.cumulating(sk.days(1), sk.hours(6)))
    .sum(lambda sale: sale.amount, into=so_far)
    .write(revenue)
)


def main() -> None:
    """Three sales on one day, and one on the next."""
    with Harness(business, partitions=1) as harness:
        harness.send(
            sales, Sale(3 * HOUR_MS, 10), Sale(8 * HOUR_MS, 20), Sale(20 * HOUR_MS, 5), Sale(30 * HOUR_MS, 7)
        )
        harness.run()
        for each in harness.read(revenue):
            print(f"by {each.by}: {each.amount}")


if __name__ == "__main__":
    main()
