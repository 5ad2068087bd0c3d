"""The errors streamkit raises: the class says who must act, the fields say what to do.

The problem is a lowercase fragment without a period. `where` names the place, `detail` explains, `hint` gives
the next command or edit. A person reads `render()`; a program reads the class and the code.

Errors raised by one module only are defined in that module.
"""

from types import FrameType
from typing import ClassVar


class StreamkitError(Exception):
    """Root of all errors raised by streamkit; never raised itself."""

    code: ClassVar[str] = "SK000"

    def __init__(self, problem: str, *, where: str = "", detail: str = "", hint: str = "") -> None:
        super().__init__(problem)
        self.problem = problem
        self.where = where
        self.detail = detail
        self.hint = hint

    def __str__(self) -> str:
        """For logs, dead letters and tracebacks: what went wrong and, at the end, what to do about it."""
        parts = [self.problem]
        if self.where:
            parts.append(f"at {self.where}")
        if self.detail:
            parts.append(self.detail)
        if self.hint:
            parts.append("hint: " + " ".join(self.hint.splitlines()))
        return "; ".join(part.rstrip(".") for part in parts)

    def render(self) -> str:
        """Several aligned lines for a person at a terminal."""
        return render(self.code, self.problem, where=self.where, detail=self.detail, hint=self.hint)


def render(code: str, problem: str, *, where: str = "", detail: str = "", hint: str = "") -> str:
    """What an error looks like at a terminal."""
    lines = [f"error[{code}]: {problem}"]
    for label, text in (("where", where), ("detail", detail), ("hint", hint)):
        if text:
            first, *rest = text.splitlines()
            lines.append(f"  {label:<7} {first}")
            lines.extend(f"          {line}" for line in rest)
    return "\n".join(lines)


class Retry(StreamkitError):
    """We act, soon: something outside was slow or away, and the same step may be tried again."""

    code = "SK100"


class WriterDead(Retry):
    """A commit's outcome is in doubt, so this epoch of the writer must never be used again.

    The owner opens a new epoch, reads its commit records to learn what landed, and goes on from there.
    """

    code = "SK110"


class CommitTooSlow(WriterDead):
    """A commit lasted longer than its transaction may, and none of its requests has failed: smaller ones may be in time."""

    code = "SK115"


class BrokerUnreachable(Retry):
    """No broker answers at the given address."""

    code = "SK120"


class Fenced(StreamkitError):
    """The broker refused us as a former owner: drop every task and join the group again."""

    code = "SK210"


class StateCorrupt(StreamkitError):
    """Set the local state aside and restore it from the changelog."""

    code = "SK300"


class StateInUse(StateCorrupt):
    """Another live process holds this state folder; use a fresh one beside it."""

    code = "SK310"


class UserCodeError(StreamkitError):
    """The user's data or code failed; the pipeline's error policy decides what happens to the record."""

    code = "SK400"


class DecodeError(UserCodeError):
    """Bytes that the declared codec cannot read."""

    code = "SK410"


class EncodeError(UserCodeError):
    """A value that the declared codec cannot write, or that is larger than the broker accepts."""

    code = "SK420"


class DataRefused(EncodeError):
    """The broker refused a commit for what a batch of it holds; `topic` is where that batch was going."""

    code = "SK430"

    def __init__(
        self, problem: str, *, topic: str, where: str = "", detail: str = "", hint: str = ""
    ) -> None:
        super().__init__(problem, where=where, detail=detail, hint=hint)
        self.topic = topic


class Misconfigured(StreamkitError):
    """A person must change something before we can start."""

    code = "SK500"


class Misuse(StreamkitError):
    """What was asked for makes no sense, whatever the cluster holds: a person asks for something else."""

    code = "SK501"


class InvalidPipeline(Misconfigured):
    """The pipeline, as written, has no plan."""

    code = "SK510"


class IncompatiblePlan(Misconfigured):
    """The pipeline differs from the one whose state is stored in a way that would lose state."""

    code = "SK520"


class PositionsMoved(Misconfigured):
    """The group's positions are not those that were committed with the state: going on would count twice or skip."""

    code = "SK530"


class LogGap(Misconfigured):
    """Records that were to be read next are gone from the log: a person decides whether to go on without them."""

    code = "SK540"


class StateLost(Misconfigured):
    """State that was committed is not in its changelog any more: going on would begin with empty state."""

    code = "SK550"


class SnapshotDamaged(Misconfigured):
    """A snapshot is not what its manifest says: nothing of it may be used, and a person chooses another one."""

    code = "SK580"


class Bug(StreamkitError):
    """Stop now: something we rely on is not true. Nothing was committed on top of it."""

    code = "SK900"


def is_of_the_record(error: BaseException) -> bool:
    """Whether the pipeline's error policy decides about this; what is not goes past it, to who must act.

    Whatever the user's code raises is the fault of its record, `sys.exit()` and a cancelled future's error included:
    nothing waits inside a step, so neither can come from anywhere else. Only the keyboard's interrupt can. An error class
    of ours says who must act only where our own code raised it; and no step of ours builds a pipeline.
    """
    if isinstance(error, StreamkitError):
        return isinstance(error, UserCodeError | InvalidPipeline) or not is_raised_by_us(error)
    return not isinstance(error, KeyboardInterrupt)


def is_raised_by_us(error: BaseException) -> bool:
    """Whether the code that raised it first is streamkit's."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is None or is_ours(trace.tb_frame)


def line_of(error: BaseException) -> str:
    """File and line of the innermost call outside streamkit when this was raised, or what it came of; "" if there was none."""
    for each in (error, error.__cause__):
        found = None
        trace = None if each is None else each.__traceback__
        while trace is not None:
            found = found if is_ours(trace.tb_frame) else trace
            trace = trace.tb_next
        if found is not None:
            return f"{found.tb_frame.f_code.co_filename}:{found.tb_lineno}"
    return ""


def is_ours(frame: FrameType) -> bool:
    """Whether this is streamkit's code; what we generate has no module."""
    module = frame.f_globals.get("__name__", "")
    return module == "" or str(module).partition(".")[0] == "streamkit"


def said(error: BaseException) -> str:
    """What an error says, in text that can be logged and sent: the user's may say nothing, or no text at all."""
    try:
        text = str(error) if isinstance(error, StreamkitError) else f"{type(error).__name__}: {error}"
    except BaseException as failed:
        if isinstance(failed, KeyboardInterrupt):
            raise
        text = f"{type(error).__name__}, whose text raises {type(failed).__name__}"
    return printable(text)


def printable(text: str) -> str:
    """The same text, with what UTF-8 has no form for (lone surrogates) written out."""
    return text.encode(errors="backslashreplace").decode()
