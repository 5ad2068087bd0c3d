"""Workers started from Python: in a script, or beside whatever else an event loop serves."""

import asyncio
import importlib
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import ModuleType
from typing import Any

from streamkit.config import Settings
from streamkit.errors import Misuse
from streamkit.graph.pipeline import Pipeline
from streamkit.graph.plan import Plan

# Whether a command is looking for pipelines in a module: it must not become a worker by that.
_is_imported: ContextVar[bool] = ContextVar("is_imported", default=False)


@contextmanager
def importing() -> Iterator[None]:
    """While the command line imports a user's module."""
    before = _is_imported.set(True)
    try:
        yield
    finally:
        _is_imported.reset(before)


def run(pipeline: Pipeline, settings: Settings | None = None, **given: Any) -> None:
    """Run a worker of a pipeline until Ctrl-C, SIGTERM, or the end of bounded input.

    `settings` are taken as they are; without them they come from `STREAMKIT_*` variables, and from what is `given` by
    name: `sk.run(pipeline, brokers="kafka:9092", state_dir="state")`.

    Raises:
        StreamkitError: a person must act; its text says how.
    """
    _require_a_script("sk.run")
    uvloop = importlib.import_module("uvloop")
    plan = _plan(pipeline)
    uvloop.run(_worker().run_worker(plan, settings or Settings.load(**given)))


def serve(pipeline: Pipeline, settings: Settings | None = None, **given: Any) -> Coroutine[Any, Any, None]:
    """Run a worker in the event loop that is there, until it is cancelled or bounded input has ended; `run` says more.

    A cancelled worker finishes its span, commits it and leaves the group within `drain_timeout_s`. Signals are left to
    whoever owns the loop. Code that holds the loop holds the worker up, too; a step that does so for longer than
    `processing_max_s` ends the process.

    Raises:
        StreamkitError: a person must act; its text says how.
    """
    _require_a_script("sk.serve")
    return _serve(_plan(pipeline), settings or Settings.load(**given))


async def _serve(plan: Plan, settings: Settings) -> None:
    asked = asyncio.Event()
    working = asyncio.create_task(_worker().work(plan, settings, asked), name=plan.name)
    try:
        await asyncio.shield(working)
    except asyncio.CancelledError:
        asked.set()
        await asyncio.wait([working], timeout=settings.drain_timeout_s)
        if not working.done():
            working.cancel()
            await asyncio.wait([working])
        raise


def _plan(pipeline: Pipeline) -> Plan:
    """What is to run; what may be a mistake in it is logged."""
    plan = pipeline.plan()
    importlib.import_module("streamkit.runtime.cautions").log_cautions(plan)
    return plan


def _require_a_script(function: str) -> None:
    """Refuse to work inside `import`.

    Raises:
        Misuse: a command is importing the module.
    """
    if _is_imported.get():
        raise Misuse(
            f"{function} was called while the module was imported",
            hint='call it under `if __name__ == "__main__":`; a command only looks for pipelines in a module',
        )


def _worker() -> ModuleType:
    """The runtime with Kafka's client, which a module that only defines pipelines need not wait for."""
    return importlib.import_module("streamkit.runtime.worker")
