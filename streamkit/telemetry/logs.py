"""Logs: lines for a person at a terminal, JSON lines for everything else; always on standard error.

`STREAMKIT_LOGS` chooses: `console`, `json` or `quiet` (a console that shows warnings and errors only). Loggers of the
standard library go the same way, warnings and above. A value that is secret by type or by name is never written.
"""

import logging
import os
import re
import sys
from collections.abc import Mapping
from typing import Any, Literal, TextIO

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from streamkit.config import Secret
from streamkit.errors import Misconfigured

LogStyle = Literal["console", "json", "quiet"]

LOGS_VARIABLE = "STREAMKIT_LOGS"
HIDDEN = "***"

_STYLES: tuple[LogStyle, ...] = ("console", "json", "quiet")
# By the last word of the field's name: `sasl_password` is secret, `password_env` names a variable.
_SECRET_NAME = re.compile(
    r"(^|_)(password|passwd|secret|token|credentials?|authorization|api_?key)$", re.IGNORECASE
)
# A path of ours is told by its package; everybody else speaks up only when something is wrong.
_OWN_LOGGERS = "streamkit"
# Logs every failed connection as an error and raises it too; we tell it once, from what was raised.
_REPEATS_ITSELF = "aiokafka"


def configure_logs(style: LogStyle | None = None, stream: TextIO | None = None) -> LogStyle:
    """Send all logs to `stream` (standard error) in this style; None asks the environment, then the stream.

    Returns:
        The style that was chosen.

    Raises:
        Misconfigured: `STREAMKIT_LOGS` names no style.
    """
    target = stream or sys.stderr
    chosen = style or style_for(target, os.environ)
    handler = logging.StreamHandler(target)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.ExtraAdder(), *_prepare(chosen)],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *_finish(chosen, target)],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger(_OWN_LOGGERS).setLevel(logging.WARNING if chosen == "quiet" else logging.INFO)
    logging.getLogger(_REPEATS_ITSELF).setLevel(logging.CRITICAL)
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *_prepare(chosen),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=_own_logger,
        cache_logger_on_first_use=False,
    )
    return chosen


def style_for(stream: TextIO, environment: Mapping[str, str]) -> LogStyle:
    """The style that the environment asks for; else the console on a terminal and JSON anywhere else.

    Raises:
        Misconfigured: the variable names no style.
    """
    asked = environment.get(LOGS_VARIABLE, "")
    if not asked:
        return "console" if stream.isatty() else "json"
    for style in _STYLES:
        if asked == style:
            return style
    raise Misconfigured(
        f'{LOGS_VARIABLE} is "{asked}", which is no style of logs',
        hint=f"set it to one of: {', '.join(_STYLES)}",
    )


def hide_secrets(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Replace every value that is a `Secret`, or whose name says that it is one."""
    return {name: _hidden(name, value) for name, value in event.items()}


def _hidden(name: str, value: Any) -> Any:
    if isinstance(value, Secret) or (value is not None and _SECRET_NAME.search(name)):
        return HIDDEN
    if isinstance(value, Mapping):
        return {each: _hidden(str(each), inner) for each, inner in value.items()}
    if type(value) in (list, tuple):
        return [_hidden("", inner) for inner in value]
    return value


def _own_logger(*_arguments: object) -> logging.Logger:
    return logging.getLogger(_OWN_LOGGERS)


def _prepare(style: LogStyle) -> list[Processor]:
    """What every event passes, whoever logged it."""
    format_time = "iso" if style == "json" else "%H:%M:%S"
    return [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.PositionalArgumentsFormatter(),
        structlog.processors.TimeStamper(fmt=format_time, utc=style == "json"),
        structlog.processors.StackInfoRenderer(),
        hide_secrets,
    ]


def _over_lines(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """A traceback of a user's code is for reading: below its line, as that of an exception."""
    traceback = event.pop("traceback", None)
    if traceback:
        event.setdefault("exception", traceback)
    return event


def _finish(style: LogStyle, stream: TextIO) -> list[Processor]:
    """From event to one line."""
    if style == "json":
        return [
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(default=str),
        ]
    colours = stream.isatty() and not os.environ.get("NO_COLOR")
    return [
        _over_lines,
        structlog.dev.ConsoleRenderer(
            colors=colours,
            pad_event_to=34,
            pad_level=False,
            exception_formatter=structlog.dev.plain_traceback,
        ),
    ]
