"""Everything the commands print goes through here: data on standard output, talk on standard error.

One struct stands behind both forms: `--output json` is the struct itself, `--output table` is made from it. Colour is
for terminals only, and not where `NO_COLOR` is set.
"""

import contextlib
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import Literal

import msgspec
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from streamkit.errors import StreamkitError
from streamkit.model.finding import Finding

OutputFormat = Literal["table", "json"]

# What is not there (yet), as rpk shows it.
ABSENT = "-"
# Piped tables are read by programs: no line of theirs is broken or cut.
PIPE_COLUMNS = 10_000

Cell = str | int | None


def show(value: object, output: OutputFormat, *parts: RenderableType) -> None:
    """Print data: the value as JSON, or its parts for a person."""
    if output == "json":
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n")
        sys.stdout.flush()
        return
    show_parts(*parts)


def show_parts(*parts: RenderableType) -> None:
    """Print data that has one form only."""
    console = _console(sys.stdout)
    if console.is_terminal:
        console.print(*parts, sep="\n")
        return
    with console.capture() as captured:
        console.print(*parts, sep="\n")
    lines = captured.get().splitlines()
    sys.stdout.write("".join(f"{line.rstrip()}\n" for line in lines))  # tables fill their last column


def say(text: str = "", style: str = "") -> None:
    """Talk to the person at the terminal; never data."""
    _console(sys.stderr).print(Text(text, style=style))


def say_parts(*parts: RenderableType) -> None:
    """As `say`, for what has its own colours."""
    _console(sys.stderr).print(*parts, sep="\n")


_is_debug: ContextVar[bool] = ContextVar("is_debug", default=False)


def with_tracebacks(*, debug: bool) -> None:
    """Whether whoever shows an error that was not raised shows where it came from, too."""
    _is_debug.set(debug)


def say_trace(error: BaseException) -> None:
    """Show where an error came from, if that was asked for."""
    if _is_debug.get():
        sys.stderr.write("".join(traceback.format_exception(error)))


def say_error(error: BaseException, *, debug: bool) -> None:
    """Show what went wrong: our own errors in their aligned form, a traceback only if asked for."""
    if debug:
        sys.stderr.write("".join(traceback.format_exception(error)))
    if isinstance(error, StreamkitError):
        _console(sys.stderr).print(in_colour(error.render()))
        return
    text = Text.assemble(("error", "bold red"), f": {type(error).__name__}: {error}")
    if not debug:
        text.append("\n  hint    this is not an error we expect; add --debug to see where it came from")
    _console(sys.stderr).print(text)


def say_finding(finding: Finding) -> None:
    """Show what went wrong, where it was returned and not raised."""
    say_parts(in_colour(finding.render()))


def in_colour(rendered: str) -> Text:
    """An error as it was rendered, with its labels in colour."""
    text = Text(rendered)
    text.highlight_regex(r"\Aerror\[\w+\]", "bold red")
    text.highlight_regex(r"(?m)^  (where|detail|hint) ", "cyan")
    return text


def grid(headers: Sequence[str], rows: Sequence[Sequence[Cell]]) -> Table:
    """A table without lines; numbers stand right, a column that no row fills is left out."""
    kept = [column for column in range(len(headers)) if any(row[column] not in (None, "") for row in rows)]
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="dim")
    for column in kept:
        numbers = any(isinstance(row[column], int) for row in rows)
        table.add_column(headers[column].upper(), justify="right" if numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*(_cell(row[column]) for column in kept))
    return table


def facts(*pairs: tuple[str, Cell]) -> Table:
    """Names on the left, values on the right; a pair without a value is left out."""
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), show_header=False)
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    for name, value in pairs:
        if value not in (None, ""):
            table.add_row(name, _cell(value))
    return table


def cross(rendered: str) -> Text:
    """An error behind a cross."""
    return Text.assemble(("✗", "bold red"), " ", in_colour(rendered))


def caution(what: str) -> Text:
    """One line with an exclamation mark, for what is no fault and may be a mistake."""
    return Text.assemble(("!", "bold yellow"), f" {what}")


def verdict(*, good: bool | None, what: str, detail: str = "") -> Text:
    """One line with a tick, a cross, or a dash for what could not be looked at."""
    mark, style = {True: ("✓", "bold green"), False: ("✗", "bold red"), None: (ABSENT, "dim")}[good]
    text = Text.assemble((mark, style), (f" {what}", "" if good is not None else "dim"))
    if detail:
        first, *rest = detail.splitlines()
        text.append("".join([f"  {first}", *(f"\n    {line}" for line in rest)]), style="dim")
    return text


@contextlib.contextmanager
def working(text: str) -> Iterator[Callable[[str], None]]:
    """Show that something takes time, and let it say what; a spinner on a terminal, lines elsewhere."""
    console = _console(sys.stderr)
    if not console.is_terminal:
        yield say
        return
    with console.status(text) as status:
        yield status.update


def _console(stream: object) -> Console:
    """A console on the stream as it is now: tests and pipes put others in its place."""
    terminal = bool(getattr(stream, "isatty", lambda: False)())
    return Console(
        file=stream,  # type: ignore[arg-type]  # any text stream
        highlight=False,
        markup=False,
        emoji=False,
        soft_wrap=not terminal,
        width=None if terminal else PIPE_COLUMNS,
    )


def _cell(value: Cell) -> Text:
    if value is None or value == "":
        return Text(ABSENT, style="dim")
    return Text(f"{value:,}" if isinstance(value, int) else value)
