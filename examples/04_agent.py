"""An agent: a function that is called once per record. State is a parameter whose default declares it.

It compiles to the same step as an operator class. It may be an `async def`, but inside a span nothing may wait: results
leave through `ctx.emit`, and what must be remembered is state, never a local variable.
"""

import msgspec

import streamkit as sk
from streamkit.testing import Harness


class Reading(msgspec.Struct):
    """What a thermometer says."""

    sensor: str
    degrees: float


readings = sk.topic("readings", Reading)
changes = sk.topic("changes", Reading)

smoothing = sk.pipeline("smoothing")


@smoothing.agent(readings, key=lambda reading: reading.sensor, to=changes)
async def only_changes(
    reading: Reading,
    ctx: sk.Context[str, Reading],
    last: sk.ValueState[float | None] = sk.value(float),
) -> None:
    """Let a reading through if it differs by a degree from the last one that went through."""
    before = last.get()
    if before is None or abs(reading.degrees - before) >= 1:
        last.set(reading.degrees)
        ctx.emit(reading)


def main() -> None:
    """Four readings, of which two tell something new."""
    with Harness(smoothing) as harness:
        harness.send(readings, *(Reading("attic", degrees) for degrees in (20.0, 20.4, 20.9, 21.2)))
        harness.run()
        for reading in harness.read(changes):
            print(f"{reading.sensor}: {reading.degrees}")


if __name__ == "__main__":
    main()
