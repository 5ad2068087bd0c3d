"""Windows by number: the mean of every three measurements, and of the last three after each one."""

import msgspec

import streamkit as sk
from streamkit.testing import Harness


class Reading(msgspec.Struct):
    """A sensor has measured."""

    sensor: str
    degrees: float


class Mean(sk.WindowProcess[str, Reading, float]):
    """Sees all elements of a window when it fires."""

    def process(
        self, key: str, window: sk.Window, elements: list[Reading], ctx: sk.WindowContext[float]
    ) -> None:
        """Send on their mean."""
        ctx.emit(sum(each.degrees for each in elements) / len(elements))


readings = sk.topic("readings", Reading)
means, moving = sk.topic("means", float), sk.topic("moving-means", float)
weather = sk.pipeline("weather")
by_sensor = weather.read(readings).key_by(lambda reading: reading.sensor)
by_sensor.window(sk.counting(3)).process(Mean(), name="mean_of_three").write(means)
by_sensor.window(sk.counting(3, slide=1)).process(Mean(), name="moving_mean").write(moving)


def main() -> None:
    """Six measurements of one sensor."""
    with Harness(weather) as harness:
        for degrees in (10.0, 20.0, 30.0, 40.0, 50.0, 60.0):
            harness.send(readings, Reading("roof", degrees))
        harness.run()
        print("of every three:", harness.read(means))
        print("of the last three:", harness.read(moving))


if __name__ == "__main__":
    main()
