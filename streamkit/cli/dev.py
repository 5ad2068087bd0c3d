"""`streamkit dev`: a real Kafka on this machine until Ctrl-C."""

import asyncio
import contextlib
import os
import signal
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from cyclopts import App, Parameter
from cyclopts.validators import Number

from streamkit.cli.connect import connected
from streamkit.cli.options import Output
from streamkit.cli.output import Cell, facts, say, show, working
from streamkit.config import Settings
from streamkit.errors import Misconfigured, Misuse, Retry
from streamkit.model.broker_address import PORT_MAX
from streamkit.operate.topics_list import TopicsTotal, count_all
from streamkit.testing.broker import Broker, start_dev_broker

BROKERS_VARIABLE = "STREAMKIT_BROKERS"
# Kafka's own default. Brokers for tests keep everything for ever, which would hide that old records are deleted.
SETTINGS = {"log.retention.ms": "604800000"}


class DevBroker(msgspec.Struct, frozen=True, omit_defaults=True):
    """A broker for development; with a folder for its data, what it has found there."""

    brokers: str
    kind: str
    nodes: int
    data: str | None = None
    kept: TopicsTotal | None = None


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Where:
    """Where the broker listens, and where its data lies."""

    port: Annotated[
        int | None,
        Parameter(
            validator=Number(gte=1, lte=PORT_MAX),
            help="The port it listens at, a free one by default; three nodes take the two behind it, too.",
        ),
    ] = None
    data: Annotated[
        Path | None,
        Parameter(
            metavar="FOLDER",
            help="Keep topics, records and positions in this folder from one run to the next. It is a local JVM then.",
        ),
    ] = None


ANYWHERE = Where()

app = App(
    name="dev",
    sort_key=2,
    help_epilogue="""
Examples:

    streamkit dev
    streamkit dev --port 9092 --data .streamkit/kafka
    streamkit dev --nodes 3 --output json
""",
)


@app.default
def dev(
    *,
    nodes: Annotated[Literal[1, 3], Parameter(help="One node, or a cluster of three with replicas.")] = 1,
    where: Where = ANYWHERE,
    output: Output = "table",
) -> None:
    """Start a real Kafka on this machine and keep it until Ctrl-C. Its data goes with it, unless `--data` says where it stays.

    A container if Docker has the image, else local JVMs; the first time Kafka's jars are fetched. It listens on
    127.0.0.1 alone. As in any Kafka, records are deleted after a week.
    """
    _require_own_broker(where)
    if where.port is not None and where.port + nodes - 1 > PORT_MAX:
        raise Misuse(
            f"--port is {where.port}, and {nodes} nodes take the ports from there on",
            detail=f"the last port is {PORT_MAX}",
            hint=f"let it be {PORT_MAX + 1 - nodes} at most",
        )
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    with working("starting Kafka") as progress:
        broker = start_dev_broker(
            nodes, port=where.port, data=where.data, on_progress=progress, extra=SETTINGS
        )
    with broker:
        with contextlib.suppress(KeyboardInterrupt):
            _introduce(broker, nodes, where.data, output)
            ended.wait()
        say("stopping", style="dim")


def _require_own_broker(where: Where) -> None:
    """Where the other commands go is named by a variable; whoever names a port knows where this one is.

    Raises:
        Misconfigured: the variable is set, and no port was named.
    """
    address = os.environ.get(BROKERS_VARIABLE)
    if address and where.port is None:
        raise Misconfigured(
            f"{BROKERS_VARIABLE} is set to {address}, so other commands would go there",
            hint=f"unset it, as in `unset {BROKERS_VARIABLE}`, or use --port to start one here all the same",
        )
    os.environ.pop(
        BROKERS_VARIABLE, None
    )  # of this process: it would be taken for the broker that was asked for


def _introduce(broker: Broker, nodes: int, data: Path | None, output: Output) -> None:
    folder = None if data is None else str(data.absolute())
    kept = None if data is None else _kept(broker.bootstrap)
    shown: list[tuple[str, Cell]] = [
        ("kafka", broker.bootstrap),
        ("runs as", f"{broker.kind}, {nodes} node{'s' if nodes > 1 else ''}"),
        ("data", folder),
        ("kept", None if kept is None else _in_words(kept)),
    ]
    show(DevBroker(broker.bootstrap, broker.kind, nodes, folder, kept), output, facts(*shown))
    say("in other terminals:", style="dim")
    say(f"  export {BROKERS_VARIABLE}={broker.bootstrap}", style="bold")
    what = "removes its data" if data is None else "keeps its data"
    say(f"Ctrl-C stops it and {what}", style="dim")


def _kept(address: str) -> TopicsTotal | None:
    """What the broker has found in its folder; None if it is too busy with it to say so."""
    try:
        return asyncio.run(_count(address))
    except Retry as error:
        say(f"what was kept cannot be counted now: {error.problem}", style="yellow")
        return None


async def _count(address: str) -> TopicsTotal:
    async with connected(Settings(brokers=address)) as log:
        return await count_all(log.admin())


def _in_words(kept: TopicsTotal) -> str:
    """A marker of a transaction takes an offset as a record does, so this is the most that it can be."""
    if not kept.topics:
        return "no topics yet"
    return f"{kept.topics:,} topic{'s' if kept.topics > 1 else ''}, at most {kept.offsets:,} records, and all positions"
