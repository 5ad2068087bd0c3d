"""Late records: those whose windows are all closed. They are counted, or go to a topic of their own; never lost.

Results and late records leave a window step by the same way, told apart by the wrapper `Late`. Behind the step the
graph forks: one branch takes the late ones out of their wrapper and writes them, the other lets the results pass.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from streamkit.operators.step import Push, Scope

LATE_RECORDS = "late_records"


class Late(msgspec.Struct, frozen=True, gc=False):
    """A record that came too late, on its way to the topic of those."""

    value: Any


def is_result(value: Any) -> bool:
    """Whether this is what a window sends on, and no late record."""
    return type(value) is not Late


def late_values(value: Any) -> list[Any]:
    """The late record in this wrapper, if it is one."""
    return [value.value] if type(value) is Late else []


def late_way(following: Push, scope: Scope, *, is_sent: bool) -> Callable[[bytes, Any, int], None]:
    """Where a window step puts a record that is late for all its windows."""

    def send(key: bytes, value: Any, timestamp: int) -> None:
        following(key, Late(value), timestamp)

    def count(key: bytes, value: Any, timestamp: int) -> None:  # noqa: ARG001 - only that it was late is noted
        scope.count(LATE_RECORDS)

    return send if is_sent else count
