"""The command line: `streamkit <noun> <verb>`. Here are only the table of contents and the way errors end.

Exit codes are those of the guide to errors: 0 done, 1 failed, 2 misuse, 3 a plan that is not empty (`--exit-code`), 65 nothing
but dead letters, 75 a step held the worker for too long, 130 ended by Ctrl-C at start-up, by a second one, or because the clean end took too long.
"""

import importlib
import os
import sys
from collections.abc import Sequence

from cyclopts import App, CycloptsError, MissingArgumentError, UnusedCliTokensError
from cyclopts.help import DefaultFormatter, PanelSpec
from rich import box

import streamkit
from streamkit.cli.output import say_error, with_tracebacks
from streamkit.config import SEVERAL_WORKERS
from streamkit.errors import Misuse
from streamkit.telemetry.logs import configure_logs

DEBUG_FLAG = "--debug"

# Titles and space instead of boxes: help is read, and copied from.
PLAIN_PANELS = DefaultFormatter(panel_spec=PanelSpec(box=box.SIMPLE_HEAD))

EPILOGUE = """
Data goes to standard output, messages to standard error. A command that changes something prints its plan and acts only
with `--execute`. Every setting can also be given as `STREAMKIT_<NAME>`. `--debug` adds Python tracebacks.

Exit codes: 0 done, 1 failed, 2 misuse, 3 the plan is not empty (with `--exit-code`), 65 every record of a bounded pipeline
became a dead letter, 75 a step held the worker for longer than `processing_max_s`, 130 ended by Ctrl-C at start-up, by a second one, or after `drain_timeout_s`.
"""

# One file each; it has the `app` of its noun.
NOUNS = ("run", "dev", "check", "graph", "topics", "offsets", "watermarks", "guide")


def command_line(noun: str | None = None) -> App:
    """The command with all its nouns, or with the one that is needed: a graph need not wait for Kafka's client."""
    app = App(
        name="streamkit",
        help="Stateful, exactly-once stream processing for Python teams, on the Kafka they already run.",
        help_epilogue=EPILOGUE,
        help_format="markdown",
        help_formatter=PLAIN_PANELS,
        version=streamkit.__version__,
        result_action="return_value",
    )
    for name in [noun] if noun in NOUNS else NOUNS:
        app.command(importlib.import_module(f"streamkit.cli.{name}").app)
    return app


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; no error leaves this function, except Ctrl-C."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    with_tracebacks(debug=DEBUG_FLAG in given)
    try:
        return _run([each for each in given if each != DEBUG_FLAG])
    except BrokenPipeError:
        # `| head` has read enough. Standard output is closed once more at exit, and must not fail then.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:  # noqa: BLE001 - the last line of defence: words, not a traceback
        say_error(error, debug=DEBUG_FLAG in given)
        return 2 if isinstance(error, Misuse) else 1


def _run(words: list[str]) -> int:
    configure_logs()
    app = command_line(words[0] if words else None)
    try:
        result = app(words, exit_on_error=False, print_error=False)
    except CycloptsError as error:
        raise _misuse(error) from error
    sys.stdout.flush()
    return result if isinstance(result, int) else 0


def _misuse(error: CycloptsError) -> Misuse:
    command = " ".join(["streamkit", *(error.command_chain or ())])
    problem = str(error).strip().rstrip(".")
    if isinstance(error, UnusedCliTokensError):
        words = ", ".join(f'"{each}"' for each in error.unused_tokens or ())
        problem = f"`{command}` does not take {words}"
    elif isinstance(error, MissingArgumentError) and "PIPELINE" in problem:
        problem = f"`{command}` needs a PIPELINE: a module, or a module and its variable, as in my_module:my_pipeline"
    hint = f"`{command} --help` shows what it takes"
    if "--workers" in problem and "run" not in command.split():
        problem, hint = f"`{command}` does not take --workers", SEVERAL_WORKERS
    return Misuse(problem[:1].lower() + problem[1:], hint=hint)
