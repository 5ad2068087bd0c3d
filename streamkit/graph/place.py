"""place: where in the user's code a step was written, for errors that concern more lines than the one that fails."""

import inspect
from pathlib import Path

from streamkit.errors import is_ours


def line_of_caller() -> str:
    """The user's own line that is being run; "" if there is none."""
    frame = inspect.currentframe()
    while frame is not None and is_ours(frame):
        frame = frame.f_back
    return "" if frame is None else place(frame.f_code.co_filename, frame.f_lineno)


def place(file: str, line: int | None) -> str:
    """File and line, as short as they can be said here."""
    path, here = Path(file), Path.cwd()
    return f"{path.relative_to(here) if path.is_relative_to(here) else path}, line {line}"
