"""Folding the values of a key: `reduce` for two of a kind, an `Aggregator` for anything else.

With updates="latest" a key sends on only its last result of each commit: fewer records, the same last one.
"""

import msgspec

import streamkit as sk
from streamkit.testing import Harness


class Ride(msgspec.Struct):
    """A taxi ride."""

    driver: str
    minutes: int


class Sums(msgspec.Struct):
    """The accumulator: what is kept of all rides of a driver."""

    rides: int = 0
    minutes: int = 0


class MeanMinutes(sk.Aggregator[Ride, Sums, float]):
    """How long a ride takes on average. The types in brackets: value, accumulator, result."""

    def create(self) -> Sums:
        """The accumulator of a driver that has not been seen."""
        return Sums()

    def add(self, accumulator: Sums, value: Ride, /) -> Sums:
        """One more ride."""
        return Sums(accumulator.rides + 1, accumulator.minutes + value.minutes)

    def result(self, accumulator: Sums, /) -> float:
        """What is sent on."""
        return accumulator.minutes / accumulator.rides


rides, means = sk.topic("rides", Ride), sk.topic("mean-minutes", float)
longest = sk.topic("longest-rides", Ride)
driving = sk.pipeline("driving")
by_driver = driving.read(rides).key_by(lambda ride: ride.driver)
by_driver.aggregate(MeanMinutes(), updates="latest").write(means)
by_driver.reduce(lambda a, b: max(a, b, key=lambda ride: ride.minutes), name="longest").write(longest)


def main() -> None:
    """Three rides of one driver."""
    with Harness(driving) as harness:
        harness.send(rides, Ride("ann", 10), Ride("ann", 30), Ride("ann", 20))
        harness.run()
        print("mean:", harness.read(means)[-1], "longest:", harness.read(longest)[-1].minutes)


if __name__ == "__main__":
    main()
