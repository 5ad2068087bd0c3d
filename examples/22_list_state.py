"""List state: a list for every key that grows at its end. Each element is stored on its own, so adding stays cheap.

Here the key is a parcel, and the list is where it has been scanned. Its delivery sends the journey on and empties the list.
"""

import msgspec

import streamkit as sk
from streamkit.testing import Harness


class Scan(msgspec.Struct):
    """A parcel was seen at a place, for the last time when it was delivered."""

    parcel: str
    place: str
    is_delivery: bool = False


class Journey(msgspec.Struct):
    """Where a parcel has been."""

    parcel: str
    places: list[str]


class Tracking(sk.Operator[str, Scan, Journey]):
    """One list of places per parcel."""

    places = sk.list_of(str)

    def on_record(self, value: Scan, ctx: sk.Context[str, Journey]) -> None:
        """Remember the place, or send all of them on."""
        self.places.add(value.place)
        if value.is_delivery:
            ctx.emit(Journey(ctx.key, self.places.get()))
            self.places.clear()


scans, journeys = sk.topic("scans", Scan), sk.topic("journeys", Journey)
tracking = sk.pipeline("tracking")
tracking.read(scans).key_by(lambda scan: scan.parcel).process(Tracking()).write(journeys)


def main() -> None:
    """Two parcels, one of them delivered."""
    with Harness(tracking) as harness:
        harness.send(scans, Scan("p1", "Bremen"), Scan("p2", "Lyon"), Scan("p1", "Kassel"))
        harness.send(scans, Scan("p1", "Ulm", is_delivery=True))
        harness.run()
        for journey in harness.read(journeys):
            print(f"{journey.parcel}: {' -> '.join(journey.places)}")


if __name__ == "__main__":
    main()
