"""Sessions: windows that last as long as somebody is there. Half a minute without a click, and the visit is over.

A click between two sessions that turns up late makes one of them: sessions grow together.
"""

import msgspec

import streamkit as sk
from streamkit.testing import Harness


class Click(msgspec.Struct):
    """Somebody clicked."""

    user: str
    at: int


class Visit(msgspec.Struct):
    """Somebody was there, for so long."""

    user: str
    seconds: float
    clicks: int


def visit(user: str, window: sk.Window, clicks: int) -> Visit:
    """A session ends one gap after its last record."""
    return Visit(user, (window.end - window.start) / 1000 - 30, clicks)


clicks = sk.topic("clicks", Click, time="at", late=sk.seconds(60))
visits = sk.topic("visits", Visit)
visiting = sk.pipeline("visiting")
(
    visiting.read(clicks)
    .key_by(lambda click: click.user)
    .window(sk.session(sk.seconds(30)))
    .count(into=visit)
    .write(visits)
)


def main() -> None:
    """Ann's click at 25 s comes last of hers, and joins what looked like two visits."""
    with Harness(visiting, partitions=1) as harness:
        harness.send(
            clicks, Click("ann", 0), Click("ann", 50_000), Click("bob", 55_000), Click("ann", 25_000)
        )
        harness.send(clicks, Click("cid", 300_000))
        harness.run()
        for each in sorted(harness.read(visits), key=lambda each: each.user):
            print(f"{each.user} stayed {each.seconds:.0f} s for {each.clicks} clicks")


if __name__ == "__main__":
    main()
