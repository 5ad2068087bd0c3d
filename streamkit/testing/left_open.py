"""Harnesses that nobody closes are closed when Python ends: torn down task by task, each would complain in asyncio's words."""

import atexit
import contextlib
import sys
from typing import Protocol


class Closable(Protocol):
    """What can be left open."""

    def close(self) -> None:
        """Stop everything."""


left_open: set[Closable] = set()


@atexit.register
def close_all() -> None:
    """Say once that something was left open, and close it."""
    if left_open:
        sys.stderr.write("a Harness was not closed: use it in a `with` block, or call close()\n")
    for each in list(left_open):
        with contextlib.suppress(Exception):
            each.close()
