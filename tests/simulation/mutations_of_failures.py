"""Deliberate faults where records fail: what is undone, and what comes behind it."""

import contextlib
from typing import Any

from streamkit.model.counts import DEAD_LETTERS
from streamkit.state.record_layer import RecordLayer
from streamkit.state.timers import TimerCells
from streamkit.state.values import ValueFormat
from streamkit.task import letters
from streamkit.task.careful import Careful
from streamkit.task.chain import RecordFailed
from streamkit.task.failures import Failures
from streamkit.task.ingest import FetchedIntake, Intake
from streamkit.task.task import Task

# More often than anybody may run a record without a word.
UNCOUNTED = 25


def undone_record_keeps_its_state(patch: Any) -> None:
    """What a failed record has changed is settled with the next one."""

    def broken(self: RecordLayer) -> None:
        for cells in self._cells:
            if isinstance(cells, TimerCells):
                cells.undo()

    patch(RecordLayer, "undo", broken)


def undone_record_keeps_its_output(patch: Any) -> None:
    """What a failed record has sent out goes out with the next one."""
    undo = Careful.undo

    def broken(self: Careful) -> None:
        sent = list(self._sent)
        undo(self)
        self._sent.extend(sent)

    patch(Careful, "undo", broken)


def undone_record_keeps_its_timers(patch: Any) -> None:
    """Timers that a failed record has set come due."""
    patch(TimerCells, "undo", TimerCells.settle)


def undone_record_takes_others_along(patch: Any) -> None:
    """Those behind a failed record in its slice are passed over."""
    run = FetchedIntake._run_one_by_one

    def broken(self: FetchedIntake, records: Any, condemned: Any, failures: Any) -> Any:
        for record in records:
            before = self.task.clock.counts[DEAD_LETTERS]
            verdict = run(self, [record], condemned, failures)
            if verdict is not None or self.is_paused:
                return verdict
            if self.task.clock.counts[DEAD_LETTERS] > before:
                self._advance(records[-1].offset + 1)
                return None
        return None

    patch(FetchedIntake, "_run_one_by_one", broken)


def state_that_cannot_be_stored_is_not_found(patch: Any) -> None:
    """Nobody looks whether a row fits into the changelog before the span ends."""
    patch(ValueFormat, "require_storable", lambda *_given: None)


def tried_again_on_the_spot(patch: Any) -> None:
    """A failed record is undone and run again at once, uncounted, before anybody is told: the results are right."""
    run = Intake._run_one

    def broken(self: Intake, record: Any) -> None:
        for _ in range(UNCOUNTED):
            with contextlib.suppress(RecordFailed):
                run(self, record)
                return
        run(self, record)

    patch(Intake, "_run_one", broken)


def attempts_are_never_counted(patch: Any) -> None:
    """Every failure of a record is its first one."""
    is_given_up = Failures._is_given_up

    def broken(self: Failures, task: Task, what: Any, reason: Any) -> bool:
        task.book.attempts.clear()
        return is_given_up(self, task, what, reason)

    patch(Failures, "_is_given_up", broken)


def letters_of_some_errors_cannot_be_written(patch: Any) -> None:
    """What an error says is taken as it is, although it may have no form in UTF-8, or no text at all."""
    patch(letters, "said", str)
    patch(letters, "printable", str)
    patch(letters, "_bytes", str.encode)
