"""Options that several commands share, and what they become."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from streamkit.cli.output import OutputFormat
from streamkit.config import GuaranteeName, Settings

Target = Annotated[
    str,
    Parameter(
        name="PIPELINE",
        env_var="STREAMKIT_PIPELINE",
        help="Where the pipeline is: `module:name`, or `module` if it has just one. "
        "Modules are found from the current folder.",
    ),
]
StateDir = Annotated[
    Path | None,
    Parameter(
        env_var="STREAMKIT_STATE_DIR",
        metavar="FOLDER",
        show_default=lambda _: Settings().state_dir,
        help="Where the state of this host's workers lies.",
    ),
]
Guaranteed = Annotated[
    GuaranteeName | None,
    Parameter(
        env_var="STREAMKIT_GUARANTEE",
        show_default=lambda _: Settings().guarantee,
        help="What a crash may do to a record's effects.",
    ),
]
AllowDroppedState = Annotated[
    bool,
    Parameter(
        env_var="STREAMKIT_ALLOW_DROPPED_STATE",
        negative=(),
        show_default=False,
        help="Start also if this version no longer has steps with state: give that state up for good.",
    ),
]
Output = Annotated[
    OutputFormat, Parameter(name=["--output", "-o"], help="The form of the data on standard output.")
]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Cluster:
    """Which Kafka, and how to speak to it."""

    brokers: Annotated[
        str | None,
        Parameter(
            env_var="STREAMKIT_BROKERS",
            metavar="HOST:PORT",
            show_default=lambda _: Settings().brokers,
            help="Address of a broker, or several with commas.",
        ),
    ] = None
    settings: Annotated[
        Path | None,
        Parameter(
            metavar="FILE", help="A TOML file with settings; flags and STREAMKIT_* variables come before it."
        ),
    ] = None

    def load(self, **given: Any) -> Settings:
        """The settings of this command."""
        return Settings.load(self.settings, brokers=self.brokers, **given)


DEFAULT_CLUSTER = Cluster()
