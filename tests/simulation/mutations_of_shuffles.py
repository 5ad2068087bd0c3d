"""Broken promises of shuffles that stay within a worker, each as a patch."""

from typing import Any

from streamkit.runtime.commit import Committer
from streamkit.runtime.local import HandedIntake, LocalShuffles
from streamkit.runtime.loop import WorkerLoop
from streamkit.task.ingest import Intake


def handed_over_on_rewind(patch: Any) -> None:
    """What was handed over in a dropped span is run in the next one."""
    patch(LocalShuffles, "drop", lambda _self: None)


def committed_before_they_are_run(patch: Any) -> None:
    """A commit does not wait for what was handed over."""

    async def broken(self: WorkerLoop) -> None:
        pass

    patch(WorkerLoop, "_run_handed", broken)


def topics_are_overtaken(patch: Any) -> None:
    """Records are handed over while older ones lie in the topics."""
    patch(LocalShuffles, "_hold_back", lambda _self: True)


def own_commits_are_overtaken(patch: Any) -> None:
    """What this worker itself wrote to the topics last is not waited for."""
    write = Committer._write

    async def broken(self: Committer, *given: Any) -> None:
        await write(self, *given)
        self.ends.clear()

    patch(Committer, "_write", broken)


def doors_stay_open(patch: Any) -> None:
    """Tasks come and go, and records are handed over as before."""
    patch(LocalShuffles, "follow", lambda _self: None)


def receiver_does_not_commit(patch: Any) -> None:
    """Who was handed records does not know that it has moved."""
    run = Intake.run_slice

    def broken(self: Intake, *given: Any) -> Any:
        before = self.task.moved
        verdict = run(self, *given)
        if isinstance(self, HandedIntake):
            self.task.moved = before
        return verdict

    patch(Intake, "run_slice", broken)
