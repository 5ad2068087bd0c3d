"""Ledger: what the notes of the control topic come to, read in the order of the log. Everybody who reads them knows the same.

A note counts only if no newer round began before it; `Stored` always does. A round that changes before all tasks have
reached a cut breaks it. Whoever reads must be shown notes of committed transactions only: all releases rest on that.

The log may have been compacted, or notes of what is over deleted. Then this is still exact: the round, which cut is open, and
who has reached, declined and stored it in time; who is released; the next number; which commands wait. Of a cut that has
ended only that it has, and how, and the images that were stored last: what came after its end may seem to have come before.
It rests on what writers keep to. A round is written once; another note at most a second time, the same, in the same round and
before the next trigger: whoever does not know whether a commit has landed reads the log to its end first. Only what is over is
deleted, a cut's end last and an answer after its command. The newest cut stays, and so do all rounds, which are few.
"""

from collections import Counter, deque
from collections.abc import Collection
from typing import assert_never

from streamkit.cuts.notes import Answer, Command, Declined, End, Note, Reached, Round, Stored, Trigger
from streamkit.model.ids import TaskId

# How many cuts are kept whole after their end: as many as may still wait for their manifest, or be shown.
ENDED_KEPT = 8

# Under these names it is counted what was read and did not count.
VOID = "void"
STRANGE = "strange"
LATE = "late"


class Cut:
    """What is known of one cut."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.trigger: Trigger | None = None
        # Only those that count.
        self.reached: dict[TaskId, Reached] = {}
        self.declined: dict[TaskId, Declined] = {}
        self.stored: dict[TaskId, Stored] = {}
        self.end: End | None = None

    def take(self, note: Trigger | Reached | Declined | Stored | End) -> bool:
        """Take in a note of this cut that is not void; whether it came in time to say anything."""
        is_in_time = self.end is None or isinstance(note, Stored)
        match note:
            case Reached() | Declined() if not is_in_time:
                pass
            case Reached():
                self.reached.setdefault(note.task, note)
            case Declined():
                self.declined.setdefault(note.task, note)
            case Stored():
                self.stored[note.task] = note
            case Trigger():
                self.trigger = self.trigger or note
            case End():
                self.end = self.end or note
            case _:
                assert_never(note)
        return is_in_time

    def admits(self, task: TaskId) -> bool:
        """Whether the task is in it, or its trigger is not known."""
        if self.trigger is None:
            return True
        return 0 <= task.partition < self.trigger.stages.get(task.stage, 0)

    @property
    def is_stopping(self) -> bool:
        """Whether its tasks stay where they are until the workers leave."""
        return self.trigger is not None and self.trigger.is_stopping

    def tasks(self, stage: str | None = None) -> list[TaskId]:
        """The tasks that are in it, or those of one stage."""
        stages = {} if self.trigger is None else self.trigger.stages
        chosen = stages if stage is None else {stage} & stages.keys()
        return [TaskId(name, partition) for name in chosen for partition in range(stages[name])]

    def missing(self, stage: str | None = None) -> list[TaskId]:
        """The tasks, or those of one stage, that have not reached it."""
        return [task for task in self.tasks(stage) if not self._has_reached(task)]

    @property
    def is_lined_up(self) -> bool:
        """Whether all its tasks have reached it: before a newer round, and before its end."""
        return self.trigger is not None and not self.missing()

    @property
    def unstored(self) -> list[TaskId]:
        """The tasks whose images are not in the snapshot store."""
        return [task for task in self.tasks() if task not in self.stored]

    @property
    def may_complete(self) -> bool:
        """Whether nothing is missing but its end. A stranger that declines counts: it has written without being in the cut."""
        return self.end is None and self.is_lined_up and not self.unstored and not self.declined

    def is_broken(self, latest: int) -> bool:
        """Whether a newer round began before all had reached it, `latest` being the latest; it can only be aborted."""
        return self.trigger is not None and self.trigger.round < latest and not self.is_lined_up

    def _has_reached(self, task: TaskId) -> bool:
        reached = self.reached.get(task)
        return reached is not None and self.trigger is not None and reached.round == self.trigger.round


class Ledger:
    """The notes so far, taken together."""

    def __init__(self) -> None:
        # The latest round of which there is a note; group generations begin at 1.
        self.round = 0
        # Cuts without an end, by number.
        self._cuts: dict[int, Cut] = {}
        # The last ones that have ended, oldest first.
        self.ended: deque[Cut] = deque(maxlen=ENDED_KEPT)
        # The numbers of stopping cuts that are complete: whoever stands there stays.
        self._stopped: set[int] = set()
        # The greatest number that a note has named, and that one which counted has.
        self._greatest = 0
        self._newest = 0
        self._commands: dict[str, Command] = {}
        self._answered: set[str] = set()
        self.ignored: Counter[str] = Counter()

    # -- reading ----------------------------------------------------------------------------------------------------

    def read(self, note: Note) -> None:
        """Take in the next note of the log."""
        match note:
            case Command():
                if note.id not in self._answered:
                    self._commands.setdefault(note.id, note)
            case Answer():
                self._answered.add(note.id)
                self._commands.pop(note.id, None)
            case Round():
                if not self._is_void(note):
                    self.round = note.round
            case Trigger() | Reached() | Declined() | Stored() | End():
                self._greatest = max(self._greatest, note.cut)
                if not self._is_void(note):
                    self._read_of_cut(note)
            case _:
                assert_never(note)

    def _is_void(self, note: Round | Trigger | Reached | Declined | Stored | End) -> bool:
        """Whether a newer round began before it."""
        is_void = note.round < self.round and not isinstance(note, Stored)
        self.ignored[VOID] += is_void
        return is_void

    def _read_of_cut(self, note: Trigger | Reached | Declined | Stored | End) -> None:
        cut = self._cut(note.cut)
        if cut is None or not cut.take(note):
            self.ignored[LATE] += 1
        elif isinstance(note, Reached) and not cut.admits(note.task):
            self.ignored[STRANGE] += 1
        if cut is None or cut.end is None:
            return
        if cut.end.is_complete and cut.is_stopping:
            self._stopped.add(cut.number)
        if self._cuts.pop(cut.number, None) is not None:
            self.ended.append(cut)

    def _cut(self, number: int) -> Cut | None:
        """The cut of this number, a new one if it is the greatest so far; None if it is over and forgotten."""
        if number > self._newest:
            self._newest = number
            self._cuts[number] = Cut(number)
        found = self._cuts.get(number)
        if found is None:
            found = next((each for each in self.ended if each.number == number), None)
        return found

    # -- what follows -----------------------------------------------------------------------------------------------

    @property
    def next_number(self) -> int:
        """The number of the next cut."""
        return self._greatest + 1

    @property
    def unended(self) -> list[Cut]:
        """The cuts that were begun and have no end, oldest first. Before another is begun, each of them needs one."""
        return [self._cuts[number] for number in sorted(self._cuts) if self._cuts[number].trigger is not None]

    @property
    def open(self) -> Cut | None:
        """The cut that tasks take part in; None if there is none, or if its round was over before all had reached it."""
        newest = self.unended[-1:]
        return newest[0] if newest and not newest[0].is_broken(self.round) else None

    @property
    def unanswered(self) -> list[Command]:
        """The commands that wait for an answer, in the order in which they came."""
        return list(self._commands.values())

    def is_over(self, number: int) -> bool:
        """Whether nobody stops at this cut any more, because of its end or a newer round; not before its trigger is read."""
        cut = self._cuts.get(number)
        return number <= self._newest and (cut is None or cut.is_broken(self.round))

    def is_released(self, task: TaskId, number: int, frozen: Collection[TaskId] = ()) -> bool:
        """Whether a task that has stopped at this cut may go on.

        `frozen` are the tasks of the same worker whose barriers are in its commit under way: they may be counted before
        the note is read, because nothing that follows can be written unless that commit has landed.

        A cut that is over and forgotten holds nobody; one of which nothing was read yet does.
        """
        cut = self._cuts.get(number)
        if cut is None or cut.end is not None:
            return number <= self._newest and number not in self._stopped
        if cut.trigger is None or cut.is_stopping:
            return False
        if all(each in frozen for each in cut.missing(task.stage)):
            return True
        return cut.is_broken(self.round)
