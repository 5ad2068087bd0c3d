"""Evictors: which elements of a window are thrown away when it fires. What `window(..., evictor=...)` takes.

With an evictor every element of a window is kept until it fires, so nothing is folded in advance. What is evicted,
before or after the results are made, is gone for later firings too.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Generic, TypeVar

from streamkit.errors import InvalidPipeline
from streamkit.model.duration import to_ms
from streamkit.windows.window import Window

T = TypeVar("T")


class Evictor(Generic[T]):
    """Chooses among the elements of a window: (timestamp, value) each, in the order in which they came.

    Both methods return what is kept and leave the given list as it is.
    """

    def before(self, elements: list[tuple[int, T]], window: Window) -> list[tuple[int, T]]:  # noqa: ARG002
        """What the results are made of. If nothing is kept there are no results."""
        return elements

    def after(self, elements: list[tuple[int, T]], window: Window) -> list[tuple[int, T]]:  # noqa: ARG002
        """What stays for the next firing."""
        return elements


class PlacedEvictor(Evictor[T]):
    """An evictor with one rule, applied before the results are made or, with `after=True`, behind."""

    def __init__(self, *, after: bool) -> None:
        self._is_after = after

    def kept(self, elements: list[tuple[int, T]]) -> list[tuple[int, T]]:
        """The rule."""
        return elements

    def before(self, elements: list[tuple[int, T]], window: Window) -> list[tuple[int, T]]:  # noqa: ARG002
        """As `Evictor.before`."""
        return elements if self._is_after else self.kept(elements)

    def after(self, elements: list[tuple[int, T]], window: Window) -> list[tuple[int, T]]:  # noqa: ARG002
        """As `Evictor.after`."""
        return self.kept(elements) if self._is_after else elements


class CountEvictor(PlacedEvictor[Any]):
    """Keeps the last `number` elements."""

    def __init__(self, number: int, *, after: bool = False) -> None:
        super().__init__(after=after)
        if not isinstance(number, int) or number < 1:
            raise InvalidPipeline(
                f"a count evictor keeps a number of elements, got {number!r}",
                hint="write for example CountEvictor(10)",
            )
        self.number = number

    def kept(self, elements: list[tuple[int, Any]]) -> list[tuple[int, Any]]:
        """As `PlacedEvictor.kept`."""
        return elements[-self.number :]


class TimeEvictor(PlacedEvictor[Any]):
    """Keeps the elements that are less than `size` older than the newest."""

    def __init__(self, size: timedelta, *, after: bool = False) -> None:
        super().__init__(after=after)
        self.size = to_ms(size, of="the size of a time evictor")
        if self.size <= 0:
            raise InvalidPipeline(
                f"the size of a time evictor is {size}, and must be above zero",
                hint="write for example TimeEvictor(minutes(1))",
            )

    def kept(self, elements: list[tuple[int, Any]]) -> list[tuple[int, Any]]:
        """As `PlacedEvictor.kept`."""
        cutoff = max(timestamp for timestamp, _ in elements) - self.size
        return [element for element in elements if element[0] > cutoff]


class DeltaEvictor(PlacedEvictor[T]):
    """Keeps the elements for which `distance(value, last)` is below the threshold; `last` is the one that came last."""

    def __init__(self, threshold: float, distance: Callable[[T, T], float], *, after: bool = False) -> None:
        super().__init__(after=after)
        self.threshold = threshold
        self.distance = distance

    def kept(self, elements: list[tuple[int, T]]) -> list[tuple[int, T]]:
        """As `PlacedEvictor.kept`."""
        last = elements[-1][1]
        return [element for element in elements if self.distance(element[1], last) < self.threshold]
