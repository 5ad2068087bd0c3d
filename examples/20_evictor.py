"""An evictor throws elements away before a window fires: the speed of a car over its last 100 metres.

The trigger looks at how far the car has come, the evictor keeps what is less than 100 metres behind.
"""

import msgspec

import streamkit as sk
from streamkit.testing import Harness


class Position(msgspec.Struct):
    """Where a car is."""

    car: str
    second: int
    metres: int


class Speed(sk.WindowProcess[str, Position, int]):
    """Metres per second over the elements that are left."""

    def process(
        self, key: str, window: sk.Window, elements: list[Position], ctx: sk.WindowContext[int]
    ) -> None:
        """First and last position are enough."""
        first, last = elements[0], elements[-1]
        ctx.emit((last.metres - first.metres) // max(last.second - first.second, 1))


def distance(one: Position, other: Position) -> float:
    """How far apart two positions are."""
    return abs(other.metres - one.metres)


positions, speeds = sk.topic("positions", Position), sk.topic("speeds", int)
traffic = sk.pipeline("traffic")
by_car = traffic.read(positions).key_by(lambda position: position.car)
moving = by_car.window(
    sk.everything(), trigger=sk.DeltaTrigger(49, distance), evictor=sk.DeltaEvictor(101, distance)
)
moving.process(Speed()).write(speeds)


def main() -> None:
    """A car that gets faster."""
    with Harness(traffic) as harness:
        for second, metres in enumerate((0, 10, 30, 60, 100, 150, 210, 280)):
            harness.send(positions, Position("c", second, metres))
        harness.run()
        print("metres per second:", harness.read(speeds))


if __name__ == "__main__":
    main()
