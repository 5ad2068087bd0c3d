"""Logs: lines for people, JSON for programs, secrets for nobody."""

import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from streamkit.config import Secret
from streamkit.errors import Misconfigured
from streamkit.telemetry.logs import configure_logs, hide_secrets, style_for


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def leave_logging_as_it_was() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.getLogger("aiokafka").setLevel(logging.NOTSET)
    logging.getLogger("streamkit").setLevel(logging.NOTSET)
    structlog.reset_defaults()


def test_json_lines_have_time_level_event_and_fields() -> None:
    stream = io.StringIO()
    configure_logs("json", stream)
    structlog.get_logger().info("worker started", worker="w-0")
    line = json.loads(stream.getvalue())
    assert (line["event"], line["level"], line["worker"]) == ("worker started", "info", "w-0")
    assert line["timestamp"].endswith("Z")


def test_an_exception_stays_on_its_line_in_json() -> None:
    stream = io.StringIO()
    configure_logs("json", stream)
    try:
        int("boo")
    except ValueError:
        structlog.get_logger().exception("it failed")
    (line,) = stream.getvalue().splitlines()
    assert "ValueError: invalid literal" in json.loads(line)["exception"]


def test_a_traceback_of_user_code_stands_below_its_line_on_the_console() -> None:
    stream = io.StringIO()
    configure_logs("console", stream)
    structlog.get_logger().error(
        "the task waits", traceback="Traceback:\n  strict.py\nValueError: no", at="a[0]@1"
    )
    told = stream.getvalue().splitlines()
    assert "at=a[0]@1" in told[0]
    assert told[1:] == ["Traceback:", "  strict.py", "ValueError: no"]


def test_the_console_has_one_readable_line() -> None:
    stream = io.StringIO()
    configure_logs("console", stream)
    structlog.get_logger().info("worker started", worker="w-0")
    assert "\x1b" not in stream.getvalue()
    assert "worker=w-0" in stream.getvalue()


def test_colour_is_for_terminals_without_no_color(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    coloured, plain = Terminal(), Terminal()
    configure_logs("console", coloured)
    structlog.get_logger().info("here")
    monkeypatch.setenv("NO_COLOR", "1")
    configure_logs("console", plain)
    structlog.get_logger().info("here")
    assert "\x1b" in coloured.getvalue()
    assert "\x1b" not in plain.getvalue()


def test_quiet_leaves_warnings_and_errors() -> None:
    stream = io.StringIO()
    configure_logs("quiet", stream)
    structlog.get_logger().info("nothing to see")
    structlog.get_logger().warning("look")
    assert "nothing" not in stream.getvalue()
    assert "look" in stream.getvalue()


def test_other_loggers_go_the_same_way() -> None:
    stream = io.StringIO()
    configure_logs("json", stream)
    logging.getLogger("some.library").info("not this")
    logging.getLogger("some.library").warning("that %s", "one", extra={"password": "hush"})
    line = json.loads(stream.getvalue())
    assert (line["event"], line["password"]) == ("that one", "***")


def test_secrets_are_hidden_by_type_and_by_name() -> None:
    event = {
        "a": Secret("hush"),
        "sasl_password": "hush",
        "nested": {"token": "hush", "x": [Secret("hush")]},
        "n": 1,
    }
    hidden = hide_secrets(None, "info", event)
    assert "hush" not in str(hidden)
    assert hidden["n"] == 1
    assert hide_secrets(None, "info", {"password_env": "NAME", "key": "k"}) == {
        "password_env": "NAME",
        "key": "k",
    }


def test_the_style_follows_the_variable_then_the_stream() -> None:
    assert style_for(Terminal(), {}) == "console"
    assert style_for(io.StringIO(), {}) == "json"
    assert style_for(Terminal(), {"STREAMKIT_LOGS": "quiet"}) == "quiet"
    with pytest.raises(Misconfigured, match="no style"):
        style_for(Terminal(), {"STREAMKIT_LOGS": "loud"})
