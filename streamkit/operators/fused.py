"""Fused steps: several steps of a chain as one function, so that a record pays for what they do and not for calls.

A step that can be said in a few statements says them once, as a `Statements`. A row of such steps becomes one Python
function: their statements in order, each step inside the block that the one before it opened. Every line remembers
its step, so after an exception the failing step is read off the traceback, which costs nothing while all is well.
"""

import re
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from types import CodeType, FrameType, TracebackType
from typing import Any, ClassVar, TypeVar

import msgspec

from streamkit.operators.step import MAIN, Ports, Push, Scope, Statements

INDENT = "    "
# Where a generated function keeps the step of each of its lines, among its globals.
_STEPS = "__steps__"
# The code of the functions that say in a parameter whose step they are, by identity: no code of a user's is among them.
_named: dict[int, CodeType] = {}

F = TypeVar("F", bound=Callable[..., Any])

_NAME = re.compile(r"(?<![\w.])[A-Za-z_]\w*")


class _StepOfLine(dict[int, str]):
    """The step of each line of a generated function; a type of its own, so that nothing of a user's is taken for it."""


class InlineStep(msgspec.Struct, frozen=True):
    """A step that is said in a few statements. It can stand alone, as every step, or be fused with its neighbours."""

    inputs: ClassVar[tuple[str, ...]] = (MAIN,)
    outputs: ClassVar[tuple[str, ...]] = (MAIN,)
    fails_clean: ClassVar[bool] = True
    makes_of_many: ClassVar[bool] = False

    @abstractmethod
    def code(self, scope: Scope) -> Statements:
        """The statements of this step."""

    def bind(self, outputs: Ports, scope: Scope) -> Ports:
        """As `Step.bind`."""
        return {MAIN: fuse_push((self.code(scope),), outputs[MAIN])}


def fuse_push(codes: Sequence[Statements], following: Push | None) -> Push:
    """One function that takes a record through these steps and gives each result to `following`."""
    head = Statements("", ("def push(key, value, timestamp):",), {})
    push: Push = _function("push", (head, *codes), following)
    return push


def fuse_loop(
    each: Statements, codes: Sequence[Statements], following: Push | None
) -> Callable[[Iterable[Any]], None]:
    """One function that takes many records through these steps; `each` makes key, value and timestamp of a `record`."""
    head = Statements("", ("def run(records):", "    for record in records:"), {})
    run: Callable[[Iterable[Any]], None] = _function("run", (head, each, *codes), following)
    return run


def step_in(trace: TracebackType) -> str | None:
    """The step that was at work in this frame when it raised; None if the frame is no step's."""
    return step_at(trace.tb_frame, trace.tb_lineno)


def is_loop(frame: FrameType) -> bool:
    """Whether this is the frame of a loop over records, as `fuse_loop` makes them."""
    return frame.f_code.co_name == "run" and type(frame.f_globals.get(_STEPS)) is _StepOfLine


def step_at(frame: FrameType, line: int) -> str | None:
    """The step that is at work in this frame at this line; None if the frame is no step's."""
    steps = frame.f_globals.get(_STEPS)
    if type(steps) is _StepOfLine:
        return steps.get(line) or None
    if id(frame.f_code) in _named:
        step: str | None = frame.f_locals.get("step")
        return step
    return None


def named(function: F) -> F:
    """Know a function as a step's own: its parameter `step` says whose. A user's may be called the same."""
    code = getattr(function, "__code__", None)
    if code is not None:
        _named[id(code)] = code
    return function


def _function(name: str, codes: Sequence[Statements], following: Push | None) -> Any:
    lines: list[str] = []
    steps = _StepOfLine()
    names: dict[str, Any] = {_STEPS: steps, "following": following}
    indent = ""
    for number, code in enumerate(codes):
        own = {each: f"{each}_{number}" for each in code.names}
        names |= {own[each]: thing for each, thing in code.names.items()}
        for line in _renamed(code.lines, own):
            lines.append(indent + line)
            steps[len(lines)] = code.step
        if code.lines[-1].endswith(":"):
            last = code.lines[-1]
            indent += last[: len(last) - len(last.lstrip())] + INDENT
    has_more = following is not None and not codes[-1].is_end
    lines.append(indent + ("following(key, value, timestamp)" if has_more else "pass"))
    exec(_compiled("\n".join(lines)), names)  # noqa: S102 - our own statements; what users give are objects in `names`
    return names[name]


def _renamed(lines: Sequence[str], own: Mapping[str, str]) -> Iterator[str]:
    """The lines with the names of their objects made unique among the fused steps."""
    for line in lines:
        yield _NAME.sub(lambda found: own.get(found[0], found[0]), line)


@lru_cache(maxsize=512)
def _compiled(source: str) -> CodeType:
    """A task is bound again whenever it starts over; its statements stay the same."""
    return compile(source, "<fused steps>", "exec")
