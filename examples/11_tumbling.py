"""Tumbling windows: how often was each page clicked in each minute?

`time="at"` says when a click happened, `late=seconds(5)` how much older than the newest one a click may be and still
come in time. A window closes, and sends its result on, when event time has passed its end: later clicks tell.
"""

import msgspec

import streamkit as sk
from streamkit.testing import Harness


class Click(msgspec.Struct):
    """Somebody clicked, at this time in milliseconds."""

    page: str
    at: int


class PageMinute(msgspec.Struct):
    """How often a page was clicked in the minute that began then."""

    page: str
    minute: str
    clicks: int


def page_minute(page: str, window: sk.Window, clicks: int) -> PageMinute:
    """What goes on when a window closes: called with the key, the window and the count."""
    return PageMinute(page, f"{window.start_time:%H:%M}", clicks)


clicks = sk.topic("clicks", Click, time="at", late=sk.seconds(5))
page_minutes = sk.topic("page-minutes", PageMinute)
counting = sk.pipeline("clicks-by-minute")
(
    counting.read(clicks)
    .key_by(lambda click: click.page)
    .window(sk.tumbling(sk.minutes(1)))
    .count(into=page_minute)
    .write(page_minutes)
)


def main() -> None:
    """Clicks in two minutes, one of them out of order, and a later one that closes the first."""
    with Harness(counting, partitions=1) as harness:
        harness.send(clicks, Click("home", 10_000), Click("cart", 58_000), Click("home", 61_000))
        harness.send(clicks, Click("home", 57_000), Click("home", 70_000))
        harness.run()
        for each in sorted(harness.read(page_minutes), key=lambda each: (each.minute, each.page)):
            print(f"{each.minute} {each.page}: {each.clicks}")


if __name__ == "__main__":
    main()
