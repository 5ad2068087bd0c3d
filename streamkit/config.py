"""Settings: frozen structs, one per concern, from keyword arguments, a TOML file or `STREAMKIT_*` variables.

Durations are seconds (`_s`), sizes are bytes (`_bytes`). Every limit has its reason beside it.
"""

import difflib
import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from streamkit.errors import Misconfigured
from streamkit.model.broker_address import PORT_MAX, address_problem
from streamkit.model.by_hand import Written, read_value, require_bounds, unknown

GuaranteeName = Literal["exactly_once", "at_least_once", "at_most_once"]

# Kafka counts milliseconds in 32 bits: 24 days. Nobody waits for longer anywhere else either.
SECONDS_MAX = 2_147_483
# Zero where "at once" means something. Where it does not, the least with which anything could come about.
Seconds = Annotated[float, Meta(ge=0, le=SECONDS_MAX)]
Pause = Annotated[float, Meta(ge=0.001, le=SECONDS_MAX)]
PatienceSeconds = Annotated[float, Meta(ge=0.1, le=SECONDS_MAX)]
# A hundred years: no record of a clock that is right lies behind them.
Future = Annotated[float, Meta(ge=0, le=3_155_760_000)]
# More records between two turns than anybody handles in a second.
Records = Annotated[int, Meta(ge=1, le=1_000_000)]
# What is sent in one transaction fits into the lengths of Kafka's protocol.
SpanBytes = Annotated[int, Meta(ge=1, le=2_147_483_647)]
# Zero keeps nothing in memory that can be had again. A pebibyte is more than there is.
MemoryBytes = Annotated[int, Meta(ge=0, le=2**50)]
Port = Annotated[int, Meta(ge=1, le=PORT_MAX)]
# Kafka counts replicas in 16 bits.
Replicas = Annotated[int, Meta(ge=1, le=32_767)]


PREFIX = "STREAMKIT_"
# Ours, and no settings: what the command line, the logs, the slots and the brokers of tests and demos read.
OTHER_VARIABLES = frozenset(
    f"{PREFIX}{name}"
    for name in (
        "BROKER_HEAP",
        "CACHE",
        "KAFKA_IMAGE",
        "LOGS",
        "PIPELINE",
        "SASL_PASSWORD",
        "WORKER",
        "WORKERS",
        "WORKER_COUNT",
        "WORKER_NUMBER",
    )
)
# Kubernetes tells every container of a service that is called "streamkit..." by variables of these names.
_SERVICE_LINK = re.compile(r".*_SERVICE_(HOST|PORT)(_\w+)?|.*_PORT_\d+_(TCP|UDP|SCTP)(_\w+)?")
_SERVICE_URL = re.compile(r"(tcp|udp|sctp)://.*")
# A settings object is that of one worker.
SEVERAL_WORKERS = "several workers: start several processes, or `streamkit run <pipeline> --workers 2`"
# How the keys of the connection's security begin, in a file and in messages.
_SECURITY = "security."
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Secret(str):
    """Text that never shows itself in logs, tracebacks or `repr`."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "Secret('***')"


class Security(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How to connect: TLS and SASL, passed through to the client."""

    protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = "SCRAM-SHA-512"
    username: str | None = None
    password_env: str = "STREAMKIT_SASL_PASSWORD"  # noqa: S105 - the variable's name, not the secret

    def __post_init__(self) -> None:
        """Refuse what is surely a password; without repeating it.

        Raises:
            Misconfigured: `password_env` cannot be the name of a variable.
        """
        if not _VARIABLE.fullmatch(self.password_env):
            raise Misconfigured(
                "security.password_env is not the name of an environment variable",
                detail="its value is not shown here: it may be the password itself",
                hint="put the password into a variable, and the variable's name into password_env",
            )

    def __repr__(self) -> str:
        """As of any struct; but somebody may have given the password where its variable's name belongs."""
        shown = {name: getattr(self, name) for name in self.__struct_fields__ if name != "password_env"}
        return f"Security({', '.join(f'{name}={value!r}' for name, value in shown.items())})"

    @property
    def password_place(self) -> str:
        """Where the password is looked for, in words; what may be the password itself is not repeated."""
        if self.password_env.startswith(PREFIX) or self.password_env in os.environ:
            return f"the environment variable {self.password_env}"
        return "the environment variable that security.password_env names"

    def password(self) -> Secret | None:
        """The password, read from its environment variable when it is needed and kept nowhere else."""
        value = os.environ.get(self.password_env)
        return None if value is None else Secret(value)


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How a worker runs."""

    brokers: str = "127.0.0.1:9092"
    security: Security = Security()
    guarantee: GuaranteeName = "exactly_once"

    # Under load a span lasts this long; when the input is drained it is committed at once. 100 ms is what Kafka
    # Streams uses under exactly-once, so figures compare.
    commit_interval_s: Seconds = 0.1
    # When little comes in, wait this long for more before the next round of commits: below it requests, not records,
    # are what is paid for. At 2,000 records/s it costs 10 ms of latency and saves a third of the CPU.
    commit_pause_s: Seconds = 0.016
    # A span that built this many bytes of output is committed early: bounds memory and transaction size.
    span_bytes_max: SpanBytes = 16 * 1024 * 1024
    # Records handled between two turns of the event loop, if they are quick: replies and commits wait at most this long.
    # Slow ones are bounded by time (`runtime/turns.py`). What the loop does between two turns costs as much as a dozen.
    slice_records: Records = 1000

    # Hand records over in memory where a shuffle begins and ends in the same worker; False sends all by their topics.
    local_shuffle: bool = True

    # A step that keeps one record for longer than this holds up everything else of its worker, for good as far as one
    # can tell: the worker leaves the group. Five minutes is what Kafka's own consumers allow (max.poll.interval.ms).
    processing_max_s: PatienceSeconds = 300.0

    # A worker that does not answer for this long loses its tasks.
    session_timeout_s: PatienceSeconds = 10.0
    # Workers have this long to finish their span when the group changes.
    rebalance_timeout_s: PatienceSeconds = 30.0
    # Far longer than any span, short enough that a lost worker's transaction does not hold readers for ever.
    transaction_timeout_s: PatienceSeconds = 30.0
    request_timeout_s: PatienceSeconds = 10.0

    state_dir: str = ".streamkit/state"
    store: Literal["rocksdb", "memory"] = "rocksdb"
    # What all tasks of a worker may keep in memory, RocksDB included (`state/budget.py`). None: half of the memory of the
    # container or the machine, divided among the workers of one parent.
    memory_bytes: MemoryBytes | None = None
    # Committed rows are gathered this long before they are written to RocksDB: what changes often is written once.
    state_apply_interval_s: Seconds = 1.0
    # RocksDB keeps them in memory, and its files get them this often: a process that is killed leaves its successor
    # about this much of the changelog to read again. One task's small file a minute is nothing to a disk.
    state_flush_interval_s: Seconds = 60.0

    # Let a version of the pipeline start that no longer has a stage or a store with state: that state is given up.
    allow_dropped_state: bool = False

    # Event time is announced downstream at most this often: a signal goes to every partition, so with many tasks it is
    # stretched further (`task/time_passes.py`).
    watermark_interval_s: Pause = 0.2
    # A record that claims to be further in the future than this has a wrong clock: it is set aside, or it would carry
    # event time away with it.
    future_max_s: Future = 86_400.0

    # Records in a shuffle that streamkit did not write stop the worker; True passes over them, and counts them.
    skip_foreign: bool = False

    # Restart delays of a failing task: doubled from the first to the last.
    restart_delay_first_s: Pause = 0.5
    restart_delay_last_s: Pause = 30.0
    # Prometheus metrics on this port of the loopback address; None: nobody listens. With several workers under one
    # parent each takes the next port.
    metrics_port: Port | None = None

    # A worker that starts before its broker waits this long: a broker and its machine are up in less.
    start_timeout_s: Seconds = 60.0
    # SIGTERM: finish the span, commit and leave within this time.
    drain_timeout_s: PatienceSeconds = 20.0

    replication: Replicas | None = None
    """Replication factor of topics we create; None leaves it to the broker."""

    def __post_init__(self) -> None:
        """Refuse numbers out of bounds, and addresses that no client could connect to.

        Raises:
            Misconfigured: a number is out of bounds, or an address is not of the form host:port.
        """
        require_bounds(self)
        if problem := address_problem(self.brokers):
            raise Misconfigured(
                "brokers cannot be read as addresses",
                detail=problem,
                hint="write host:port, several with commas, for example kafka-1:9092,kafka-2:9092",
            )

    @classmethod
    def load(
        cls, path: Path | None = None, environment: Mapping[str, str] | None = None, **given: Any
    ) -> "Settings":
        """Settings from a TOML file, overlaid by `STREAMKIT_<FIELD>` variables, overlaid by what is given.

        Raises:
            Misconfigured: a key or a variable that is no setting, or a value of the wrong type or out of bounds.
        """
        environment = os.environ if environment is None else environment
        written = {} if path is None else _from_file(path)
        written |= _from_environment(environment)
        written |= {name: Written(name, value) for name, value in given.items() if value is not None}
        settings = _settings_of(written)
        _require_known(environment, settings)
        _require_order(settings)
        return settings


def _settings_of(written: Mapping[str, Written]) -> Settings:
    """Settings from values by their keys; those of the connection's security are `security.<field>`."""
    values: dict[str, Any] = {}
    security: dict[str, Any] = {}
    for key, each in written.items():
        if key.startswith(_SECURITY):
            field = key.removeprefix(_SECURITY)
            security[field] = _read_security(field, each)
        elif key in Settings.__struct_fields__:
            values[key] = read_value(Settings, key, each)
        elif key == "workers":
            raise Misconfigured(f"{each.name} is not a setting", where=each.where, hint=SEVERAL_WORKERS)
        else:
            raise unknown("setting", each.name, Settings.__struct_fields__, where=each.where)
    if security and "security" not in values:
        values["security"] = Security(**security)
    return Settings(**values)


def _read_security(field: str, written: Written) -> Any:
    if field not in Security.__struct_fields__:
        known = [f"{_SECURITY}{each}" for each in Security.__struct_fields__]
        raise unknown("setting", written.name, known, where=written.where)
    if field == "password_env" and not isinstance(written.value, str):
        return ""  # refused by the struct itself, which does not show it: it may be the password
    return read_value(Security, field, written)


def _from_file(path: Path) -> dict[str, Written]:
    written: dict[str, Written] = {}
    for key, value in _read_toml(path).items():
        if key == "security" and isinstance(value, dict):
            written |= {
                f"{_SECURITY}{field}": Written(f"{_SECURITY}{field}", each, str(path))
                for field, each in value.items()
            }
        else:
            written[key] = Written(key, value, str(path))
    return written


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text())
    except FileNotFoundError:
        where = "" if path.is_absolute() else f'it was looked for in "{Path.cwd()}": '
        raise Misconfigured(
            f'settings file "{path}" does not exist',
            hint=f"{where}give --settings the path of a file that is there, or leave it out",
        ) from None
    except tomllib.TOMLDecodeError as error:
        raise Misconfigured(f'settings file "{path}" is not TOML: {error}') from None


def _from_environment(environment: Mapping[str, str]) -> dict[str, Written]:
    keys = [*(each for each in Settings.__struct_fields__ if each != "security")]
    keys += [f"{_SECURITY}{field}" for field in Security.__struct_fields__]
    variables = {key: f"{PREFIX}{key.upper().replace('.', '_')}" for key in keys}
    return {key: Written(name, environment[name]) for key, name in variables.items() if name in environment}


def _require_known(environment: Mapping[str, str], settings: Settings) -> None:
    """Refuse a variable that would be a setting if it were spelt well: it would change nothing, and nobody would know."""
    names = [name for name in Settings.__struct_fields__ if name != "security"]
    names += [f"security_{name}" for name in Security.__struct_fields__]
    known = {f"{PREFIX}{name.upper()}" for name in names}
    for variable in sorted(environment):
        if variable in known or variable in OTHER_VARIABLES or variable == settings.security.password_env:
            continue
        if variable.startswith(PREFIX) and not _is_service_link(variable, environment[variable]):
            ends = [each.removeprefix(PREFIX) for each in sorted(known | OTHER_VARIABLES)]
            near = difflib.get_close_matches(variable.removeprefix(PREFIX), ends, n=1)
            raise Misconfigured(
                f"environment variable {variable} is not a setting",
                hint=f"did you mean {PREFIX}{near[0]}?"
                if near
                else f"unset it; the settings are: {', '.join(names)}",
            )


def _require_order(settings: Settings) -> None:
    """Refuse times that make one thing look like another: a broker that is silent is no commit that is slow."""
    if settings.request_timeout_s >= settings.transaction_timeout_s:
        raise Misconfigured(
            f"request_timeout_s is {settings.request_timeout_s:g}, and transaction_timeout_s "
            f"is {settings.transaction_timeout_s:g}",
            detail="a request may not wait for longer than a transaction may last",
            hint="let transaction_timeout_s be three times request_timeout_s, as by default",
        )


def _is_service_link(variable: str, value: str) -> bool:
    if _SERVICE_LINK.fullmatch(variable):
        return True
    return variable.endswith("_PORT") and _SERVICE_URL.fullmatch(value) is not None
