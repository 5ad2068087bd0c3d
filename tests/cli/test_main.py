"""The command itself: help at every level, exit codes, and errors that are words."""

import json
import subprocess
import sys

import pytest

import streamkit as sk
from streamkit.cli.command import _run
from streamkit.cli.options import DEFAULT_CLUSTER
from streamkit.cli.output import say_trace, with_tracebacks
from streamkit.cli.run import Running, _child_command
from streamkit.config import SEVERAL_WORKERS
from streamkit.errors import Misconfigured, Misuse

HELPS = [
    ([], ["run", "dev", "check", "graph", "topics", "offsets", "guide", "Exit codes"]),
    (
        ["run"],
        ["PIPELINE", "--workers", "--brokers", "--guarantee", "--state-dir", "--commit-interval", "Examples"],
    ),
    (["dev"], ["--nodes", "127.0.0.1"]),
    (["check"], ["Changes nothing", "--state-dir"]),
    (["graph"], ["mermaid"]),
    (["topics"], ["plan", "apply", "list", "describe", "partitions = 4"]),
    (["topics", "plan"], ["--exit-code", "--dir"]),
    (["topics", "apply"], ["--execute", "Nothing is ever deleted"]),
    (["guide"], ["NAME", "Markdown"]),
    (["offsets"], ["show", "reset"]),
    (["offsets", "reset"], ["--to", "--execute", "Refused once the pipeline has committed state"]),
]


@pytest.mark.parametrize(("command", "words"), HELPS, ids=[" ".join(each[0]) or "root" for each in HELPS])
def test_help_says_what_it_does_and_what_it_takes(workspace, command, words) -> None:
    done = workspace.run(*command, "--help")
    assert done.returncode == 0
    text = " ".join(done.stdout.split())
    assert all(word in text for word in words)
    assert not done.stderr
    assert "\x1b" not in done.stdout


def test_the_version_is_one_line(workspace) -> None:
    done = workspace.run("--version")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip().replace(".", "").isdigit()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["check", "m", "extra", "more"], '`streamkit check` does not take "extra", "more"'),
        (["offsets", "show"], "`streamkit offsets show` needs a PIPELINE"),
        (["run"], "as in my_module:my_pipeline"),
    ],
)
def test_a_word_too_many_or_too_few_is_named(workspace, arguments, told) -> None:
    done = workspace.run(*arguments)
    assert done.returncode == 2
    assert told in " ".join(done.stderr.split())


def test_a_settings_file_that_is_missing_says_where_it_was_looked_for(workspace) -> None:
    done = workspace.run("check", workspace.target, "--settings", "nope.toml")
    assert '"nope.toml" does not exist' in done.stderr
    assert str(workspace.folder) in "".join(done.stderr.split())


@pytest.mark.parametrize(
    "arguments",
    [
        ["nonsense"],
        ["graph"],
        ["run", "m", "--workers", "0"],
        ["run", "m", "--guarantee", "maybe"],
        ["graph", "m", "-x"],
    ],
)
def test_misuse_exits_with_2_and_points_to_the_help(workspace, arguments) -> None:
    done = workspace.run(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("error[SK501]")
    assert "--help" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_error_has_a_traceback_only_when_asked_for(workspace) -> None:
    quiet, loud = workspace.run("graph", "nowhere"), workspace.run("graph", "nowhere", "--debug")
    assert quiet.returncode == loud.returncode == 1
    assert "Traceback" not in quiet.stderr
    assert "Traceback" in loud.stderr
    assert 'module "nowhere" does not exist' in quiet.stderr


def test_the_same_graph_comes_as_text_as_data_and_as_a_chart(workspace) -> None:
    text = workspace.run("graph", workspace.target)
    data = workspace.run("graph", workspace.target, "--output", "json")
    chart = workspace.run("graph", "services/page_views", "--output", "mermaid")
    assert text.returncode == data.returncode == chart.returncode == 0
    assert f"pipeline {workspace.name}" in text.stdout
    assert [stage["name"] for stage in json.loads(data.stdout)["stages"]] == [workspace.views, "by_page"]
    assert chart.stdout.startswith("flowchart LR")


def test_the_pipeline_may_be_named_by_the_environment(workspace) -> None:
    assert workspace.name in workspace.run("graph", STREAMKIT_PIPELINE=workspace.target).stdout


def test_no_broker_is_said_in_words_by_every_command_that_needs_one(workspace) -> None:
    for command in (
        ["topics", "plan"],
        ["topics", "list"],
        ["offsets", "show", workspace.target],
        ["run", workspace.target],
        ["run", workspace.target, "--workers", "2"],
    ):
        done = workspace.run(*command, STREAMKIT_LOGS="quiet", STREAMKIT_START_TIMEOUT_S="1")
        assert done.returncode == 1, command
        assert done.stderr.startswith("error"), "the client's own words say nothing more"
        assert "error[SK120]" in done.stderr
        assert "127.0.0.1:9" in done.stderr
        assert "Traceback" not in done.stderr
        assert done.stdout == ""


def test_a_setting_that_is_none_is_told_with_its_file(workspace) -> None:
    (workspace.folder / "bad.toml").write_text("comit_interval_s = 1")
    done = workspace.run("run", workspace.target, "--settings", "bad.toml")
    assert done.returncode == 1
    assert "bad.toml" in done.stderr
    assert "comit_interval_s" in done.stderr


@pytest.mark.parametrize("command", ["run", "check"])
@pytest.mark.parametrize("value", ["-1", "nan", "soon"])
def test_a_setting_that_cannot_be_is_told_by_run_and_by_check_with_its_bounds(
    workspace, command, value
) -> None:
    done = workspace.run(command, workspace.target, STREAMKIT_COMMIT_INTERVAL_S=value)
    assert (done.returncode, done.stdout) == (1, "")
    words = f'STREAMKIT_COMMIT_INTERVAL_S is "{value}"; it must be a number of seconds between 0 and 2147483'
    assert done.stderr.splitlines() == [f"error[SK500]: {words}"]


def test_a_port_for_metrics_that_leaves_no_room_for_the_workers_is_refused(workspace) -> None:
    done = workspace.run("run", workspace.target, "--workers", "3", STREAMKIT_METRICS_PORT="65534")
    assert done.returncode == 1
    assert "metrics_port is 65534, and 3 workers" in done.stderr
    assert "65533 at most" in done.stderr


@pytest.mark.parametrize(
    ("command", "library"),
    [("run", "cyclopts"), ("run", "uvloop"), ("check", "rich")],
)
def test_an_interrupt_while_the_command_is_imported_ends_it_without_a_word(
    workspace, command, library
) -> None:
    """The library is one that does nothing but press Ctrl-C."""
    press = "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(30)\n"
    (workspace.folder / f"{library}.py").write_text(press)
    done = workspace.run(command, workspace.target, PYTHONPATH=str(workspace.folder))
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")
    inner = [sys.executable, "-m", "streamkit.cli.main", command, workspace.target]
    child = subprocess.run(inner, cwd=workspace.folder, capture_output=True, text=True, check=False)
    assert (child.returncode, child.stdout, child.stderr) == (130, "", "")


def test_dev_does_not_start_a_second_broker_where_one_is_set(workspace) -> None:
    done = workspace.run("dev")
    assert done.returncode == 1
    assert "unset STREAMKIT_BROKERS" in done.stderr


def test_the_package_is_the_command_too(workspace) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "streamkit", "graph", workspace.target],
        cwd=workspace.folder,
        env=workspace.environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert workspace.name in done.stdout


def test_debug_shows_where_a_module_failed(workspace) -> None:
    (workspace.folder / "failing.py").write_text("import json\njson.loads('{')\n")
    assert "Traceback" not in workspace.run("graph", "failing").stderr
    assert "decoder.py" in workspace.run("graph", "failing", "--debug").stderr


def test_run_takes_the_port_of_the_metrics_and_gives_it_to_its_workers(workspace) -> None:
    done = workspace.run("run", workspace.target, "--metrics-port", "70000")
    assert "metrics_port is 70000; it must be a whole number between 1 and 65535" in done.stderr
    words = _child_command("t", Running(metrics_port=9100), DEFAULT_CLUSTER, "table")
    assert words[words.index("--metrics-port") + 1] == "9100"
    told = workspace.run("run", "--help").stdout
    assert "STREAMKIT_METRICS_PORT" in told
    assert "STREAMKIT_COMMIT_INTERVAL_S" in told


def test_several_workers_are_asked_for_where_one_is_looked_at_or_run() -> None:
    with pytest.raises(Misuse) as error:
        _run(["check", "x", "--workers", "2"])
    assert error.value.hint == SEVERAL_WORKERS
    pipeline = sk.pipeline("p")
    pipeline.read(sk.topic("a", str)).write(sk.topic("b", str))
    for function in (sk.run, sk.serve):
        with pytest.raises(Misconfigured, match="workers is not a setting") as refused:
            function(pipeline, workers=2)
        assert refused.value.hint == SEVERAL_WORKERS


def test_a_broker_for_people_says_where_other_commands_would_go(workspace) -> None:
    done = workspace.run("dev")
    assert done.returncode == 1
    assert f"STREAMKIT_BROKERS is set to {workspace.brokers}, so other commands would go there" in done.stderr
    assert "use --port" in done.stderr


def test_debug_shows_an_error_that_was_returned(capsys) -> None:
    with_tracebacks(debug=True)
    try:
        say_trace(ValueError("inner"))
    finally:
        with_tracebacks(debug=False)
    say_trace(ValueError("other"))
    assert capsys.readouterr().err == "ValueError: inner\n"
