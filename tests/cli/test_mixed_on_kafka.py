"""A new version has run for some seconds beside the old one, and is gone: what is told, and what the old one does then."""

import signal
import subprocess
import time

import pytest

from streamkit.testing.broker import Broker
from tests.cli.test_commands_on_kafka import produce

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]

PIPELINE = """
import msgspec
import streamkit as sk


class View(msgspec.Struct):
    page: str


class Count(sk.Operator[str, View, int]):
    seen = sk.value(int, 0)
    {more}

    def on_record(self, value: View, ctx: sk.Context[str, int]) -> None:
        ctx.emit(self.seen.update(lambda seen: seen + 1))


page_views = sk.pipeline("{name}")
views = page_views.read(sk.topic("{views}", View)).key_by(lambda view: view.page, key_type=str, name="by_page")
views.process(Count(), name="counted").write(sk.topic("{counts}", int))
"""


def start(space, *arguments: str) -> "subprocess.Popen[bytes]":
    """The command, left running."""
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    return subprocess.Popen([space.command, *arguments], cwd=space.folder, env=space.environment(), **quiet)


def until(space, words: str, *command: str) -> str:
    """Ask again until the answer has these words."""
    give_up_s = time.monotonic() + 60
    while True:
        done = space.run(*command)
        told = done.stdout + done.stderr
        if words in " ".join(told.split()):
            return told
        assert time.monotonic() < give_up_s, told
        time.sleep(0.5)


def test_tasks_that_nobody_can_run_are_shown_and_the_old_version_is_always_refused(
    make_workspace, kafka_broker: Broker
) -> None:
    space = make_workspace(kafka_broker.bootstrap)
    names = {"name": space.name, "views": space.views, "counts": space.counts}
    service = space.folder / "services" / "page_views"
    (service / "pipeline.py").write_text(PIPELINE.format(more="", **names))
    (service / "newer.py").write_text(PIPELINE.format(more="unused = sk.value(int, 0)", **names))
    newer = "services.page_views.newer:page_views"
    assert space.run("topics", "apply", "--execute").returncode == 0
    produce(space.brokers, space.views, 30)
    started: list[subprocess.Popen[bytes]] = []
    try:
        look(space, newer, started)
    finally:
        for each in started:
            each.kill()
            each.wait()


def look(space, newer: str, started: "list[subprocess.Popen[bytes]]") -> None:
    old = start(space, "run", space.target)
    started.append(old)
    until(space, "lag 0 records", "offsets", "show", space.target)
    new = start(space, "run", newer, "--state-dir", "other")
    started.append(new)
    until(space, "workers 2", "offsets", "show", space.target)
    produce(space.brokers, space.views, 30)
    until(space, "lag 0 records", "offsets", "show", space.target)
    new.send_signal(signal.SIGTERM)
    assert new.wait(60) == 0

    told = until(space, "no worker can run these tasks", "offsets", "show", space.target)
    assert "start a worker of the version that ran them last" in told
    checked = space.run("check", space.target)
    assert checked.returncode == 1
    assert "✗ error[SK520]: no worker can run these tasks: " in checked.stdout
    old.send_signal(signal.SIGTERM)
    assert old.wait(60) == 0
    for _ in range(4):
        refused = space.run("run", space.target, STREAMKIT_LOGS="quiet")
        assert refused.returncode == 1
        assert "error[SK520]" in refused.stderr
