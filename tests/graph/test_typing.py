"""What the type checker sees: types flow through a pipeline, and what needs a key has one."""

from pathlib import Path

from mypy import api

ROOT = Path(__file__).resolve().parent.parent.parent

PROGRAM = """
import msgspec
from typing import reveal_type
from streamkit.graph.pipeline import pipeline
from streamkit.model.topic import topic
from streamkit.operators.aggregators import Aggregator, count, max_of
from streamkit.operators.process import Context, Operator
from streamkit.operators.side import side
from streamkit.state.views import ValueState, value


class Click(msgspec.Struct):
    user: str
    number: int


USERS = side("users", str)


class Length(Operator[str, Click, int]):
    sides = (USERS,)
    seen = value(int, 0)

    def on_record(self, value: Click, ctx: Context[str, int]) -> None:
        ctx.emit_to(USERS, value.user)
        self.seen.set(self.seen.get() + 1)
        reveal_type(ctx.headers)
        reveal_type(ctx.topic)
        reveal_type(ctx.offset)
        ctx.emit(len(ctx.key) + self.seen.get())


clicks = topic("clicks", Click)
numbers = topic("numbers", int)
p = pipeline("p")
stream = p.read(clicks)
keyed = stream.key_by(lambda click: click.user)
reveal_type(stream.filter(lambda click: click.number > 1))
reveal_type(stream.map(lambda click: click.number))
reveal_type(stream.flat_map(lambda click: [click.user]))
reveal_type(keyed)
reveal_type(keyed.map(lambda click: click.number))
reveal_type(keyed.map_keyed(lambda user, click: (user, click.number)))
reveal_type(keyed.process(Length()))
reveal_type(keyed.process(Length()).side(USERS))
reveal_type(keyed.reduce(lambda old, new: new))
reveal_type(keyed.count())
reveal_type(keyed.sum(lambda click: click.number))
reveal_type(keyed.aggregate(max_of(lambda click: click.number)))
reveal_type(keyed.aggregate(count()).key_by(lambda n: n))
reveal_type(p.read_keyed(clicks, key_type=str))
reveal_type(stream.union(keyed))
keyed.process(Length()).write(numbers)


@p.agent(clicks, key=lambda click: click.user, to=numbers)
async def agent(click: Click, ctx: Context[str, int], seen: ValueState[int] = value(int, 0)) -> None:
    ctx.emit(seen.get() + click.number)


async def test_agent(click: Click, ctx: Context[str, int], seen: ValueState[int]) -> None:
    await agent(click, ctx, seen=seen)
"""

REVEALED = [
    "tuple[tuple[str, bytes | None], ...]",
    "str | None",
    "int | None",
    "Stream[Click]",
    "Stream[int]",
    "Stream[str]",
    "Keyed[str, Click]",
    "Keyed[str, int]",
    "Keyed[str, tuple[str, int]]",
    "Keyed[str, int]",
    "Keyed[str, str]",
    "Keyed[str, Click]",
    "Keyed[str, int]",
    "Keyed[str, int]",
    "Keyed[str, int]",
    "Keyed[int, int]",
    "Keyed[str, Click]",
    "Stream[Click]",
]

# A line that a type checker must refuse, and how.
MISTAKES = [
    (
        "def send(ctx: Context[str, int]) -> None: ctx.emit_to(USERS, 3)",
        'Cannot infer value of type parameter "S" of "emit_to" of "Context"',
    ),
    ("stream.count()", '"Stream[Click]" has no attribute "count"  [attr-defined]'),
    ("stream.process(Length())", '"Stream[Click]" has no attribute "process"  [attr-defined]'),
    ("stream.write(numbers)", 'Argument 1 to "write" of "AnyStream" has incompatible type "Topic[int]"'),
    ("keyed.map(lambda click: click.nothing)", '"Click" has no attribute "nothing"  [attr-defined]'),
    (
        "stream.key_by(lambda click: click.number).process(Length())",
        'Argument 1 to "process" of "Keyed" has incompatible type "Length"; expected "Operator[int, Click, int]"',
    ),
    (
        "p.agent(numbers)(agent)",
        'incompatible type "Callable[[Click, Context[Any, Any]',
    ),
]


def check(program: str, folder: Path) -> list[str]:
    path = folder / "program.py"
    path.write_text(program)
    options = ["--strict", "--hide-error-context", "--no-pretty", f"--cache-dir={folder / 'cache'}"]
    config = f"--config-file={ROOT / 'pyproject.toml'}"
    report, trouble, _ = api.run([*options, config, str(path)])
    assert not trouble
    return [line.partition(": ")[2] for line in report.splitlines() if line.startswith(str(path))]


def test_types_flow_through_a_pipeline_and_mistakes_are_seen(tmp_path: Path) -> None:
    said = check(PROGRAM + "\n".join(line for line, _ in MISTAKES), tmp_path)
    revealed = [line.split('"')[1] for line in said if line.startswith("note: Revealed")]
    short = [line.replace("streamkit.graph.stream.", "").replace("program.", "") for line in revealed]
    assert [line.replace("builtins.", "") for line in short] == REVEALED
    errors = [line.removeprefix("error: ") for line in said if line.startswith("error: ")]
    assert len(errors) == len(MISTAKES), errors
    for error, (line, expected) in zip(errors, MISTAKES, strict=True):
        assert expected in error, line
