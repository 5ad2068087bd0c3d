"""Counting by key: `key_by` brings the records of one key together, `count` remembers how many there were.

The count is state. It is kept on disk, written to a changelog topic in the same transaction as the results, and found
again after a crash.
"""

import msgspec

import streamkit as sk
from streamkit.testing import Harness


class Click(msgspec.Struct):
    """Somebody clicked."""

    user: str
    page: str


class PageCount(msgspec.Struct):
    """How often a page was clicked so far."""

    page: str
    clicks: int


clicks = sk.topic("clicks", Click)
counts = sk.topic("page-counts", PageCount)

counting = sk.pipeline("counting")
(
    counting.read(clicks)
    .key_by(lambda click: click.page)
    .count()
    .map_keyed(PageCount)  # called with the key and the value: PageCount(page, clicks)
    .write(counts)
)


def main() -> None:
    """Three clicks, a crash, one more click."""
    with Harness(counting) as harness:
        harness.send(clicks, Click("ann", "home"), Click("bob", "home"), Click("ann", "cart"))
        harness.run()
        harness.crash()
        harness.restart()
        harness.send(clicks, Click("cid", "home"))
        harness.run()
        for count in sorted(harness.read(counts), key=lambda each: (each.page, each.clicks)):
            print(f"{count.page}: {count.clicks}")


if __name__ == "__main__":
    main()
