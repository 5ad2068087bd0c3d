"""watch: looks from beside the event loop whether it still comes round, and gives the tasks up if it does not.

Heartbeats do not need the loop (`kafka/heartbeat.py`), so the group would never miss a worker whose loop is held for ever.
A ping goes to the loop; while it stays unanswered we look what the loop's code is doing.

    after processing_max_s     say which step holds it and with what in hand, write the loss down, leave the group
    after another while        end the process, so that whoever started it starts it again
    if the loop comes back     it finds its place in the group lost, gives its tasks up and joins again

`Watch` decides and is called with the time; `watching` is the thread that calls it.
"""

import asyncio
import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextvars import copy_context

import structlog

from streamkit.kafka.ports import Membership
from streamkit.model.ids import TopicPartition
from streamkit.runtime.stuck_records import StuckRecords
from streamkit.runtime.whereabouts import Whereabouts, whereabouts

log = structlog.get_logger()

# The loop is looked at this often; with a small limit more often, so that it is kept by a tenth.
LOOK_S_MAX = 1.0
# A loop that is held for less is not worth remembering.
REMEMBERED_S = 1.0


class Hold:
    """One stretch of time in which the loop did not come round."""

    def __init__(self, since_s: float) -> None:
        self.since_s = since_s
        self.held_s = 0.0
        self.where: Whereabouts | None = None
        # Since when this very record is in hand: the one that is there at the end need not be to blame for all of it.
        self.where_since_s = since_s
        self.given_up_s: float | None = None

    def see(self, now_s: float, where: Whereabouts | None) -> None:
        """It still lasts, and this is what the code is doing."""
        self.held_s = now_s - self.since_s
        if self.where is None or where is None or where.held != self.where.held:
            self.where_since_s = self.since_s if self.where is None else now_s
        self.where = where


class Watch:
    """Judges a loop by its answers."""

    def __init__(
        self,
        limit_s: float,
        membership: Membership,
        losses: StuckRecords,
        is_past: Callable[[TopicPartition, int], bool],
    ) -> None:
        self._limit_s = limit_s
        self._membership = membership
        self._losses = losses
        self._is_past = is_past
        self._is_answered = True
        self._hold: Hold | None = None
        # The last stretch that was worth remembering, and when it ended.
        self._last: Hold | None = None
        # How many times the group was left because of it.

    @property
    def look_s(self) -> float:
        """How often to call `look`."""
        return min(LOOK_S_MAX, self._limit_s / 10)

    def answer(self) -> None:
        """Called by the loop: it has come round."""
        self._is_answered = True

    def look(self, now_s: float, find: Callable[[], Whereabouts | None], ping: Callable[[], object]) -> bool:
        """One look; `find` tells what the loop's code is doing, `ping` makes the loop call `answer`.

        Returns False if the loop has had all the time that it gets: the process must end.
        """
        if self._is_answered:
            self._end_hold()
            self._hold = Hold(now_s)
            self._is_answered = False
            ping()
            return True
        hold = self._hold
        assert hold is not None
        if now_s - hold.since_s >= min(REMEMBERED_S, self._limit_s / 2):
            hold.see(now_s, find())
        if hold.given_up_s is not None:
            return self._is_worth_waiting(hold, now_s)
        if hold.held_s >= self._limit_s:
            self._give_up(hold, now_s)
        return True

    def last_hold(self) -> dict[str, object]:
        """For the log: what held the loop last, if that was long enough to matter."""
        hold = self._hold if self._hold is not None and self._hold.held_s else self._last
        if hold is None or hold.where is None:
            return {}
        where = hold.where
        return {"step": where.step, "in_hand": where.in_hand, "held_s": round(hold.held_s, 1)}

    def _end_hold(self) -> None:
        hold = self._hold
        if hold is not None and hold.held_s:
            self._last = hold
            if hold.given_up_s is not None:
                log.warning("the event loop is back: joining the group again", held_s=round(hold.held_s, 1))
        else:
            self._last = None

    def _give_up(self, hold: Hold, now_s: float) -> None:
        """Say what holds the loop, count it against the record that is in hand, and leave the group."""
        hold.given_up_s = now_s
        where = hold.where or Whereabouts()
        log.error(
            "a step holds the event loop for too long: leaving the group",
            step=where.step or "none",
            in_hand=where.in_hand,
            held_s=round(hold.held_s, 1),
            processing_max_s=self._limit_s,
            line=where.line,
        )
        self._write_down(hold, now_s)
        self._membership.abandon()

    def _write_down(self, hold: Hold, now_s: float) -> None:
        """Count it against what is in hand, if that was so for long; else remember where the chunk was."""
        where = hold.where
        if where is None or not where.has_something:
            return
        if now_s - hold.where_since_s >= self._limit_s / 2:
            count = self._losses.note(where, self._limit_s, self._is_past)
            log.warning(
                "a loss is counted: what is in hand held the event loop for too long",
                in_hand=where.in_hand,
                losses=count,
            )
        else:
            self._losses.note_chunk(where, self._limit_s, self._is_past)
            log.warning(
                "several records together held the event loop for too long: up to here they are run one at a time",
                in_hand=where.in_hand,
            )

    def _is_worth_waiting(self, hold: Hold, now_s: float) -> bool:
        """Whether a loop that was given up has time left to come back."""
        assert hold.given_up_s is not None
        if now_s - hold.given_up_s < self._limit_s:
            return True
        where = hold.where or Whereabouts()
        log.error(
            "the event loop does not come back: ending the process",
            step=where.step or "none",
            in_hand=where.in_hand,
            held_s=round(hold.held_s, 1),
        )
        return False


@contextlib.contextmanager
def watching(watch: Watch, end: Callable[[], None]) -> Iterator[None]:
    """Watch the running event loop from a thread, until the block ends; call `end` if it never comes back."""
    loop = asyncio.get_running_loop()
    of_loop = threading.get_ident()
    over = threading.Event()

    def find() -> Whereabouts | None:
        return whereabouts(sys._current_frames().get(of_loop))  # noqa: SLF001 - documented, for debuggers like us

    def ping() -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: it is over
            loop.call_soon_threadsafe(watch.answer)

    def run() -> None:
        while not over.wait(watch.look_s):
            try:
                if not watch.look(time.monotonic(), find, ping):
                    end()
                    return
            except Exception:
                log.exception("the watch over the event loop failed; it goes on")

    thread = threading.Thread(target=copy_context().run, args=(run,), name="streamkit-watch", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
