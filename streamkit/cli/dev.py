"""`streamkit dev`: a real Kafka on this machine until Ctrl-C."""

import contextlib
import os
import signal
import threading
from typing import Annotated, Literal

import msgspec
from cyclopts import App, Parameter

from streamkit.cli.options import Output
from streamkit.cli.output import facts, say, show, working
from streamkit.errors import Misconfigured
from streamkit.testing.broker import Broker, start_broker

BROKERS_VARIABLE = "STREAMKIT_BROKERS"
# Kafka's own default. Brokers for tests keep everything for ever, which would hide that old records are deleted.
SETTINGS = {"log.retention.ms": "604800000"}


class DevBroker(msgspec.Struct, frozen=True):
    """A broker for development."""

    brokers: str
    kind: str
    nodes: int


app = App(
    name="dev",
    sort_key=2,
    help_epilogue="""
Examples:

    streamkit dev
    streamkit dev --nodes 3 --output json
""",
)


@app.default
def dev(
    *,
    nodes: Annotated[Literal[1, 3], Parameter(help="One node, or a cluster of three with replicas.")] = 1,
    output: Output = "table",
) -> None:
    """Start a real Kafka on this machine and keep it until Ctrl-C. Its data goes with it.

    A container if Docker has the image, else local JVMs; the first time Kafka's jars are fetched. It listens on
    127.0.0.1 alone.
    """
    if address := os.environ.get(BROKERS_VARIABLE):
        raise Misconfigured(
            f"{BROKERS_VARIABLE} is set to {address}: that broker is used already",
            hint=f"`unset {BROKERS_VARIABLE}` to start one here",
        )
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    with working("starting Kafka") as progress:
        broker = start_broker(nodes, on_progress=progress, extra=SETTINGS)
    with broker:
        _introduce(broker, nodes, output)
        with contextlib.suppress(KeyboardInterrupt):
            ended.wait()
        say("stopping", style="dim")


def _introduce(broker: Broker, nodes: int, output: Output) -> None:
    export = f"export {BROKERS_VARIABLE}={broker.bootstrap}"
    show(
        DevBroker(broker.bootstrap, broker.kind, nodes),
        output,
        facts(
            ("kafka", broker.bootstrap), ("runs as", f"{broker.kind}, {nodes} node{'s' if nodes > 1 else ''}")
        ),
    )
    say("in other terminals:", style="dim")
    say(f"  {export}", style="bold")
    say("Ctrl-C stops it and removes its data", style="dim")
