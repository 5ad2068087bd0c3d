"""The end of `streamkit run` on a bounded pipeline: what came in and what went out, and the exit code for it."""

from streamkit.cli.output import OutputFormat, facts, say, say_error, show
from streamkit.errors import UserCodeError
from streamkit.graph.plan import Plan
from streamkit.runtime.outcome import Outcome
from streamkit.runtime.worker import Ending

# EX_DATAERR of BSD's sysexits: the program is well, its input is not.
EXIT_ALL_DEAD = 65


def tell_end(plan: Plan, target: str, ending: Ending, output: OutputFormat) -> int:
    """Print what became of the pipeline; returns the exit code."""
    outcome = ending.outcome
    show(
        outcome,
        output,
        facts(
            ("records in", f"{outcome.records_in:,}"),
            ("records out", f"{outcome.records_out:,}"),
            ("late", f"{outcome.late:,}"),
            ("dead letters", _letters(plan, outcome)),
        ),
    )
    if ending.was_finished:
        say(f"pipeline {plan.name} had finished before; nothing was read")
        say(f"to run it anew: {anew(target)}", style="dim")
    if outcome.is_all_dead:
        say_error(all_dead(plan, target, outcome), debug=False)
        return EXIT_ALL_DEAD
    return 0


def anew(target: str) -> str:
    """What to do about a pipeline that has finished and shall run again: its results then come again too."""
    return f"`streamkit offsets reset {target} --to earliest --drop-state --execute`"


def all_dead(plan: Plan, target: str, outcome: Outcome) -> UserCodeError:
    """The error for a pipeline that could do nothing with its input."""
    if plan.on_error.action == "skip":
        return UserCodeError(
            f"every one of {outcome.records_in:,} records failed and was skipped",
            hint="the log says why, at each record",
        )
    return UserCodeError(
        f"every one of {outcome.records_in:,} records became a dead letter",
        where=f'topic "{plan.dead_letter_topic}"',
        hint="the header streamkit.error of each says why, and so does the log; fix it, then begin anew:\n"
        f"{anew(target)}",
    )


def _letters(plan: Plan, outcome: Outcome) -> str:
    if not outcome.dead_letters:
        return "0"
    is_skipped = plan.on_error.action == "skip"
    place = "skipped" if is_skipped else f"in topic {plan.dead_letter_topic}"
    return f"{outcome.dead_letters:,}, {place}"
