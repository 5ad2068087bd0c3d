"""What windows must do, written down as plainly as possible: time passes one millisecond at a time, and at each the
model looks at every window and asks whether something happens to it now.

It knows nothing of timers, cells or merging sets, and shares no code with `streamkit.windows`: definitions come in as
data. Times must be small.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

NEVER = 2**63 - 1

# Key, value and timestamp.
Record = tuple[bytes, Any, int]
# Key, start and end of the window, its values, the timestamp of the result.
Result = tuple[bytes, int, int, list[Any], int]


@dataclass
class Rules:
    """What a window step was told. `kind` names the windows, `numbers` are their durations or counts in order."""

    kind: str
    numbers: tuple[int, ...] = ()
    offset: int = 0
    lateness: int = 0
    is_processing: bool = False
    # A word and its options: "end", "each", "count" n, "continuous" ms, "delta" threshold, or "timeout" with ms, whether
    # a record resets it, and the trigger inside.
    trigger: tuple[Any, ...] = ("end",)
    is_purging: bool = False
    # What is kept of a list of (timestamp, value), before the results are made and after.
    keep_before: Callable[[list[Any]], list[Any]] = field(default=lambda elements: elements)
    keep_after: Callable[[list[Any]], list[Any]] = field(default=lambda elements: elements)
    gap: Callable[[Any], int] | None = None


@dataclass
class Box:
    """One window of one key while it is open."""

    key: bytes
    start: int
    end: int
    elements: list[tuple[int, Any]] = field(default_factory=list)
    # What the trigger remembers.
    count: int = 0
    next_fire: int | None = None
    last: Any = None
    over_at: int | None = None

    @property
    def last_ms(self) -> int:
        return NEVER if self.end == NEVER else self.end - 1


class Model:
    """Takes records, watermarks and the passing of the clock in order; `results` and `late` are what must come out."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.watermark = -1_000_000
        self.wall = 0
        self.is_finished = False
        self.boxes: list[Box] = []
        self.results: list[Result] = []
        self.late: list[Record] = []

    # -- what comes in ----------------------------------------------------------------------------------------------

    def record(self, key: bytes, value: Any, timestamp: int) -> None:
        time = self.wall if self.rules.is_processing else timestamp
        if self.rules.kind == "session":
            boxes = self._session(key, value, time)
        else:
            spans = [span for span in self._spans(time) if not self._is_closed(span[1])]
            boxes = [self._box(key, *span) for span in spans]
        if not boxes:
            self.late.append((key, value, timestamp))
        for box in boxes:
            box.elements.append((timestamp, value))
            if self._fires_at_record(box, value, timestamp):
                self._fire(box, timestamp)

    def advance(self, watermark: int, *, is_end: bool = False) -> None:
        """Event time passes, millisecond by millisecond; with the end of all input it runs as far as anything waits."""
        old, self.watermark = self.watermark, max(self.watermark, watermark)
        self.is_finished = is_end
        for now in range(old + 1, self.watermark + 1):
            for box in sorted(self.boxes, key=lambda box: (box.start, box.end)):
                self._event_tick(box, now)
        if is_end:
            for box in self.boxes:
                if box.end == NEVER:
                    self._end_tick(box)

    def pass_time(self, wall: int) -> None:
        old, self.wall = self.wall, max(self.wall, wall)
        for now in range(old + 1, self.wall + 1):
            for box in sorted(self.boxes, key=lambda box: (box.start, box.end)):
                self._clock_tick(box, now)

    # -- windows ----------------------------------------------------------------------------------------------------

    def _spans(self, time: int) -> list[tuple[int, int]]:
        """Every window that holds this time, found by looking at all there could be."""
        kind, numbers, offset = self.rules.kind, self.rules.numbers, self.rules.offset
        if kind in ("everything", "counting"):
            return [(-(2**63), NEVER)]
        if kind == "cumulating":
            size, step = numbers
            starts = [s for s in range(time - size, time + 1) if (s - offset) % size == 0]
            ends = [(s, s + k * step) for s in starts for k in range(1, size // step + 1)]
            return sorted((s, e) for s, e in ends if s <= time < e)
        size, slide = numbers if kind == "hopping" else (numbers[0], numbers[0])
        starts = [s for s in range(time - size, time + 1) if (s - offset) % slide == 0]
        return sorted((s, s + size) for s in starts if s <= time < s + size)

    def _box(self, key: bytes, start: int, end: int) -> Box:
        for box in self.boxes:
            if (box.key, box.start, box.end) == (key, start, end):
                return box
        self.boxes.append(Box(key, start, end))
        return self.boxes[-1]

    def _session(self, key: bytes, value: Any, time: int) -> list[Box]:
        gap = self.rules.gap(value) if self.rules.gap else self.rules.numbers[0]
        touching = [box for box in self.boxes if box.key == key and box.start < time + gap and time < box.end]
        touching.sort(key=lambda box: box.start)
        start = min([time, *(box.start for box in touching)])
        end = max([time + gap, *(box.end for box in touching)])
        if self._is_closed(end):
            return []
        if len(touching) == 1 and (touching[0].start, touching[0].end) == (start, end):
            return touching
        merged = Box(key, start, end, [each for box in touching for each in box.elements])
        merged.count = sum(box.count for box in touching)
        over = self.wall - 1 if self.rules.is_processing else self.watermark
        ahead = [box.next_fire for box in touching if box.next_fire is not None and box.next_fire > over]
        merged.next_fire = min(ahead, default=None)
        merged.over_at = min((b.over_at for b in touching if b.over_at is not None), default=None)
        self.boxes = [box for box in self.boxes if box not in touching] + [merged]
        return [merged]

    def _is_closed(self, end: int) -> bool:
        if self.rules.is_processing or end == NEVER:
            return False
        return end - 1 + self.rules.lateness <= self.watermark

    # -- triggers ---------------------------------------------------------------------------------------------------

    def _fires_at_record(self, box: Box, value: Any, timestamp: int) -> bool:
        kind, *options = self.rules.trigger
        if kind != "timeout":
            return self._inner_fires(kind, options, box, value, timestamp)
        timeout, is_reset, inner = options
        if self._inner_fires(inner[0], inner[1:], box, value, timestamp):
            self._begin_anew(box)
            return True
        if box.over_at is None or is_reset:
            box.over_at = self.wall + timeout
        return False

    def _inner_fires(self, kind: str, options: Any, box: Box, value: Any, timestamp: int) -> bool:
        """Whether a trigger fires at this record, which is in the box already."""
        if kind == "each":
            return True
        if kind == "count":
            box.count = 0 if box.count + 1 >= options[0] else box.count + 1
            return box.count == 0
        if kind == "delta":
            is_far = box.last is not None and abs(box.last - value) > options[0]
            box.last = value if is_far or box.last is None else box.last
            return is_far
        if not self.rules.is_processing and box.last_ms <= self.watermark:
            return True
        if kind == "continuous" and box.next_fire is None:
            box.next_fire = self._next_multiple(box, options[0], timestamp)
        return False

    def _next_multiple(self, box: Box, interval: int, timestamp: int) -> int:
        """The first multiple of the interval that is still to come, or the end of the window before it."""
        if self.rules.is_processing:
            return min((self.wall // interval + 1) * interval, box.end)
        reached = max(timestamp, self.watermark)
        return min((reached // interval + 1) * interval, box.last_ms)

    def _event_tick(self, box: Box, now: int) -> None:
        """What happens to a window at this millisecond of event time."""
        if self.rules.is_processing:
            return
        kind = self._kind()
        if self.rules.trigger[0] == "timeout" and box.over_at is None:
            pass  # nothing has come since it last fired
        elif now == box.last_ms and kind in ("end", "continuous"):
            self._fire(box, now)
            if self.rules.trigger[0] == "timeout":
                self._begin_anew(box)
        elif kind == "continuous" and now == box.next_fire:
            interval = self.rules.trigger[1]
            box.next_fire = box.last_ms if self.is_finished else min(now + interval, box.last_ms)
            self._fire(box, now)
        if now == box.last_ms + self.rules.lateness:
            self._close(box)

    def _end_tick(self, box: Box) -> None:
        """All input is finished: what waited for the end of time happens."""
        if self._kind() in ("end", "continuous"):
            self._fire(box, NEVER)

    def _clock_tick(self, box: Box, now: int) -> None:
        """What happens to a window at this millisecond on the wall."""
        if self.rules.trigger[0] == "timeout" and now == box.over_at:
            self._begin_anew(box)
            self._fire(box, now)
        if not self.rules.is_processing:
            return
        kind = self.rules.trigger[0]
        if kind == "end" and now == box.end:
            self._fire(box, now)
        if kind == "continuous" and now == box.next_fire:
            after = now + self.rules.trigger[1]
            box.next_fire = box.end if now < box.end < after else after
            self._fire(box, now)
        if now == box.end:
            self._close(box)

    def _kind(self) -> str:
        kind: str = self.rules.trigger[0]
        return self.rules.trigger[3][0] if kind == "timeout" else kind

    def _begin_anew(self, box: Box) -> None:
        box.over_at, box.next_fire, box.count = None, None, 0

    # -- results ----------------------------------------------------------------------------------------------------

    def _fire(self, box: Box, now: int) -> None:
        if not box.elements:
            return
        box.elements = self.rules.keep_before(box.elements)
        if not box.elements:
            return
        values = [value for _, value in box.elements]
        timestamp = now if box.end == NEVER else box.last_ms
        self.results.append((box.key, box.start, box.end, values, timestamp))
        box.elements = [] if self.rules.is_purging else self.rules.keep_after(box.elements)

    def _close(self, box: Box) -> None:
        self.boxes = [each for each in self.boxes if each is not box]


class SlidingModel:
    """Look-back windows, from their definition: all windows of the records so far are written down, before a record and
    after it, and what differs is what that record has changed.
    """

    def __init__(self, difference: int, lateness: int, *, is_updating: bool) -> None:
        self.difference = difference
        self.lateness = lateness
        self.is_updating = is_updating
        self.watermark = -1_000_000
        self.records: dict[bytes, list[tuple[int, int, Any]]] = {}
        self.results: list[Result] = []
        self.late: list[Record] = []
        self._number = 0

    def record(self, key: bytes, value: Any, timestamp: int) -> None:
        self._number += 1
        before = self.records.get(key, [])
        after = [*before, (timestamp, self._number, value)]
        windows = self._windows(after)
        holding = [end for end in windows if end - self.difference <= timestamp <= end]
        if all(end + self.lateness <= self.watermark for end in holding):
            self.late.append((key, value, timestamp))
            return
        self.records[key] = after
        known = self._windows(before)
        changed = [end for end, values in sorted(windows.items()) if known.get(end) != values]
        for end in changed:
            is_open = end + self.lateness > self.watermark
            if is_open and (self.is_updating or end <= self.watermark):
                self._fire(key, end, windows[end])

    def advance(self, watermark: int) -> None:
        old, self.watermark = self.watermark, max(self.watermark, watermark)
        if self.is_updating:
            return
        for now in range(old + 1, self.watermark + 1):
            for key, records in self.records.items():
                if now in (windows := self._windows(records)):
                    self._fire(key, now, windows[now])

    def _windows(self, records: list[tuple[int, int, Any]]) -> dict[int, list[Any]]:
        """Last millisecond of each window there is -> its values by time; equal times in the order of their coming."""
        times = {timestamp for timestamp, _, _ in records}
        ends = times | {timestamp + 1 + self.difference for timestamp in times}
        held = {
            end: [value for at, _, value in sorted(records) if end - self.difference <= at <= end]
            for end in ends
        }
        return {end: values for end, values in held.items() if values}

    def _fire(self, key: bytes, end: int, values: list[Any]) -> None:
        self.results.append((key, end - self.difference, end + 1, values, end))
