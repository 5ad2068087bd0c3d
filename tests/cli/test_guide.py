"""`streamkit guide`: listed, shown as it is in a pipe, laid out on a terminal."""

import os
import pty
import subprocess
from importlib.resources import files

import pytest

GUIDES = files("streamkit") / "guides"


def test_the_guides_are_listed_with_a_line_each(workspace) -> None:
    done = workspace.run("guide")
    assert done.returncode == 0
    listed = [line.split(maxsplit=1) for line in done.stdout.splitlines()]
    assert [name for name, _ in listed] == sorted(each.name.removesuffix(".md") for each in GUIDES.iterdir())
    assert dict(listed)["testing"].startswith("Run a whole pipeline in a unit test")
    assert "`streamkit guide NAME`" in done.stderr


def test_a_guide_in_a_pipe_is_the_file(workspace) -> None:
    done = workspace.run("guide", "windows")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (GUIDES / "windows.md").read_text(encoding="utf-8")


def test_a_guide_on_a_terminal_is_laid_out(workspace) -> None:
    reader, terminal = pty.openpty()
    environment = workspace.environment(TERM="xterm-256color", COLUMNS="300")
    with subprocess.Popen(
        [workspace.command, "guide", "settings"], cwd=workspace.folder, env=environment, stdout=terminal
    ) as shown:
        os.close(terminal)
        text = b""
        while True:
            try:
                piece = os.read(reader, 65536)
            except OSError:  # the other end is closed
                break
            if not piece:
                break
            text += piece
    os.close(reader)
    assert shown.returncode == 0
    lines = text.decode().splitlines()
    assert "\x1b[" in lines[0]
    assert not any(line.startswith(("#", "|", "```")) for line in lines)
    assert any("commit_interval_s" in line for line in lines)
    assert max(map(len, (_plain(line) for line in lines))) <= 110


def _plain(line: str) -> str:
    return "".join(part.partition("m")[2] if at else part for at, part in enumerate(line.split("\x1b[")))


@pytest.mark.parametrize(
    ("name", "hint"), [("windoes", "did you mean windows?"), ("xyz", "there are: concepts, ")]
)
def test_a_guide_that_is_not_there_is_answered_with_one_that_is(workspace, name, hint) -> None:
    done = workspace.run("guide", name)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f'error[SK501]: there is no guide "{name}"')
    assert hint in done.stderr
