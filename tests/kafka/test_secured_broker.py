"""TLS and SASL on a real broker: every way in, every refusal, and no password in anything that a person may see."""

import asyncio
import json
import logging
import os
import signal
import socket
import subprocess
import time
import traceback
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import confluent_kafka as other
import msgspec
import pytest

from streamkit.config import Security
from streamkit.errors import BrokerUnreachable, Misconfigured, StreamkitError
from streamkit.kafka import ports
from streamkit.kafka.log import KafkaLog
from streamkit.model.commit import Commit, Guarantee, OutBatch
from streamkit.model.ids import TaskId, TopicPartition
from streamkit.model.topic_shape import TopicSpec
from streamkit.testing.broker.secured import KeyPair, SecuredBroker, make_identity, secured_broker
from tests.cli.conftest import Workspace
from tests.kafka.auditor import read_values

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]  # the first run on a machine fetches Kafka

PASSWORD, WRONG = "Correct0Horse", "Battery0Staple"
PASSWORD_ENV, WRONG_ENV = "STREAMKIT_TEST_PASSWORD", "STREAMKIT_TEST_WRONG_PASSWORD"
QUICK_S = (
    8.0  # a refusal takes some 0.7 s, most of it the broker's pause for those who guess; a laden machine more
)
LIMIT_S = 30.0

MakeSecurity = Callable[..., Security]


@pytest.fixture(scope="module")
def broker() -> Iterator[SecuredBroker]:
    with secured_broker(PASSWORD) as running:
        yield running


@pytest.fixture
def security(broker: SecuredBroker, monkeypatch: pytest.MonkeyPatch) -> MakeSecurity:
    """Settings that are right for SASL_SSL, but for what a test changes; `who` names an identity to show."""
    monkeypatch.setenv(PASSWORD_ENV, PASSWORD)
    monkeypatch.setenv(WRONG_ENV, WRONG)
    right = Security(
        protocol="SASL_SSL",
        ca_file=str(broker.server.certificate),
        username=broker.username,
        password_env=PASSWORD_ENV,
    )

    def make(who: str = "", **changes: Any) -> Security:
        if who:
            identity: KeyPair = getattr(broker, who)
            pair = {"certificate_file": str(identity.certificate), "key_file": str(identity.key)}
            changes = pair | changes
        return msgspec.structs.replace(right, **changes)

    return make


@pytest.fixture
def locked_key(broker: SecuredBroker, tmp_path: Path) -> str:
    """The client's key, under a pass phrase."""
    path = tmp_path / "locked.pem"
    command = ["openssl", "pkey", "-in", broker.client.key, "-aes256", "-passout", "pass:word", "-out", path]
    subprocess.run(command, check=True)
    return str(path)


@asynccontextmanager
async def connected(address: str, security: Security) -> AsyncIterator[KafkaLog]:
    log = KafkaLog(address, security, request_timeout_s=10.0)
    try:
        await log.connect()
        yield log
    finally:
        await log.close()
        # TLS says goodbye before it closes. The client does not wait for that, and a loop that ends would cut it off.
        async with asyncio.timeout(QUICK_S):
            await asyncio.sleep(0)
            open_files = asyncio.get_running_loop()._selector.get_map()  # type: ignore[attr-defined]
            while len(open_files) > 1:  # noqa: ASYNC110 - nobody tells; the one that stays is the loop's own
                await asyncio.sleep(0.01)


async def refusal(address: str, security: Security) -> StreamkitError:
    """What connecting raises, which is quick."""
    with pytest.raises(StreamkitError) as caught:
        async with asyncio.timeout(QUICK_S), connected(address, security):
            pass
    return caught.value


def shown(error: StreamkitError) -> str:
    """Everything that a person may get to see of an error."""
    return "\n".join([error.render(), str(error), repr(error), *traceback.format_exception(error)])


async def walk(log: KafkaLog) -> None:
    """What a worker does, with each of the four ports: topic, group, transaction, position, committed records."""
    name = f"secured-{uuid.uuid4().hex[:8]}"
    partition = TopicPartition(name, 0)
    admin = log.admin()
    await admin.create([TopicSpec(name, 1, 1)])

    stages = (ports.StageTasks("count", 2),)
    options = ports.MemberOptions(name, "w1", stages, session_timeout_s=6.0, rebalance_timeout_s=20.0)
    membership = log.membership(options)
    assignment = await membership.join(())
    assert set(assignment.tasks) == {TaskId("count", 0), TaskId("count", 1)}
    assert await admin.members(name) == [assignment.member.member_id]

    writer = log.writer(ports.WriterOptions("w1", Guarantee.EXACTLY_ONCE))
    await writer.open()
    for number in range(3):
        batch = writer.batch()
        batch.append(0, 1000, b"k", b"value %d" % number, [])
        out = OutBatch(partition, batch, 1)
        await writer.commit(Commit([out], {partition: number + 1}, assignment.member))
    assert await admin.positions(name, [partition], timeout_s=10.0) == {partition: 3}

    reader = log.reader(committed=True)
    reader.seek(partition, 0)
    assert await read_values(reader, 3) == [b"value 0", b"value 1", b"value 2"]
    await membership.leave()
    assert await admin.members(name) == []


@pytest.mark.parametrize(
    ("protocol", "mechanism"),
    [
        ("SASL_SSL", "SCRAM-SHA-512"),
        ("SASL_SSL", "SCRAM-SHA-256"),
        ("SASL_SSL", "PLAIN"),
        ("SASL_PLAINTEXT", "SCRAM-SHA-512"),
    ],
)
async def test_a_user_with_a_password_gets_all_the_way(
    broker: SecuredBroker, security: MakeSecurity, protocol: str, mechanism: str
) -> None:
    login = security(protocol=protocol, sasl_mechanism=mechanism)
    async with connected(broker.addresses[protocol], login) as log:
        await walk(log)


async def test_a_certificate_of_ours_gets_all_the_way(broker: SecuredBroker, security: MakeSecurity) -> None:
    async with connected(broker.addresses["SSL"], security("client", protocol="SSL")) as log:
        await walk(log)


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN"])
@pytest.mark.parametrize("wrong", [{"password_env": WRONG_ENV}, {"username": "nobody"}], ids=["word", "name"])
async def test_a_wrong_login_is_named_quickly_and_no_password_is_shown(
    broker: SecuredBroker,
    security: MakeSecurity,
    caplog: pytest.LogCaptureFixture,
    mechanism: str,
    wrong: dict[str, str],
) -> None:
    caplog.set_level(logging.DEBUG)
    login = security(sasl_mechanism=mechanism, **wrong)
    error = await refusal(broker.addresses["SASL_SSL"], login)
    assert type(error) is Misconfigured
    assert f'does not let user "{login.username}" in' in error.problem
    assert error.where == broker.addresses["SASL_SSL"]
    assert "Authentication failed" in error.detail
    assert "security.username" in error.hint
    assert login.password_env in error.hint
    for secret in (PASSWORD, WRONG):
        assert secret not in shown(error)
        assert secret not in caplog.text


async def test_a_good_login_leaves_no_password_in_the_logs_either(
    broker: SecuredBroker, security: MakeSecurity, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with connected(broker.addresses["SASL_SSL"], security(sasl_mechanism="PLAIN")) as log:
        await log.admin().list_topics()
    assert PASSWORD not in caplog.text


@pytest.mark.parametrize("trusted", ["another", "system"])
async def test_a_certificate_that_is_not_trusted_is_named(
    broker: SecuredBroker, security: MakeSecurity, trusted: str
) -> None:
    ca_file = str(broker.client.certificate) if trusted == "another" else None
    error = await refusal(broker.addresses["SASL_SSL"], security(ca_file=ca_file))
    assert type(error) is Misconfigured
    assert error.problem == "the broker's certificate is not trusted"
    assert "self-signed" in error.detail
    assert "set security.ca_file" in error.hint
    assert (ca_file or "the system's list") in error.hint


async def test_a_certificate_for_another_name_is_named(broker: SecuredBroker, security: MakeSecurity) -> None:
    address = broker.addresses["SASL_SSL"].replace("127.0.0.1", "localhost")
    error = await refusal(address, security())
    assert type(error) is Misconfigured
    assert "not valid for 'localhost'" in error.detail
    assert "use a name of the broker that stands in its certificate" in error.hint


TLS_HINT = "set security.protocol to SSL or SASL_SSL"
UNOFFERED = {"protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN"}
PAIR_HINT = "set security.certificate_file and security.key_file"


@pytest.mark.parametrize(
    ("listener", "given", "problem", "hint"),
    [
        ("SASL_SSL", {"protocol": "PLAINTEXT"}, "TLS here, and security.protocol is PLAINTEXT", TLS_HINT),
        ("SASL_SSL", {"protocol": "SASL_PLAINTEXT"}, "speaks TLS here", TLS_HINT),
        ("SSL", {"protocol": "PLAINTEXT"}, "speaks TLS here", TLS_HINT),
        ("SSL", {"protocol": "SSL"}, "asks for a certificate", PAIR_HINT),
        ("SSL", {"protocol": "SSL", "who": "server"}, "refuses our certificate", PAIR_HINT),
        ("SSL", {"who": "client"}, "asks for no user here", "set security.protocol to SSL,"),
        ("PLAINTEXT", {"protocol": "SASL_PLAINTEXT"}, "asks for no user here", "protocol to PLAINTEXT,"),
        ("SASL_PLAINTEXT", UNOFFERED, "does not offer the SASL mechanism PLAIN", "security.sasl_mechanism"),
    ],
)
async def test_what_does_not_fit_the_listener_is_named(
    broker: SecuredBroker,
    security: MakeSecurity,
    listener: str,
    given: dict[str, str],
    problem: str,
    hint: str,
) -> None:
    error = await refusal(broker.addresses[listener], security(**given))
    assert type(error) is Misconfigured
    assert problem in error.problem
    assert error.where == broker.addresses[listener]
    assert hint in error.hint


@pytest.mark.parametrize(
    ("listener", "protocol", "hint"),
    [
        ("SASL_SSL", "SSL", "(PLAINTEXT, SASL_PLAINTEXT, SASL_SSL)"),
        ("SASL_PLAINTEXT", "PLAINTEXT", "(SSL, SASL_PLAINTEXT, SASL_SSL)"),
        ("PLAINTEXT", "SASL_SSL", "(PLAINTEXT, SSL, SASL_PLAINTEXT)"),
        ("SASL_PLAINTEXT", "SSL", "(PLAINTEXT, SASL_PLAINTEXT, SASL_SSL)"),
    ],
)
async def test_a_broker_that_only_hangs_up_may_be_tried_again_and_the_hint_says_what_else_it_may_be(
    broker: SecuredBroker, security: MakeSecurity, listener: str, protocol: str, hint: str
) -> None:
    error = await refusal(broker.addresses[listener], security(protocol=protocol))
    assert type(error) is BrokerUnreachable
    assert error.problem == "the broker ended the connection without an answer"
    assert error.detail
    assert error.hint.startswith(f"security.protocol is {protocol};")
    assert hint in error.hint


async def test_one_broker_that_refuses_us_says_more_than_one_that_is_away_or_hangs_up(
    broker: SecuredBroker, security: MakeSecurity
) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # and does not listen
        away = f"127.0.0.1:{nobody.getsockname()[1]}"
        both = f"{away},{broker.addresses['SASL_SSL']}"
        hangs_up = broker.addresses["SASL_PLAINTEXT"]
        error = await refusal(f"{hangs_up},{both}", security(password_env=WRONG_ENV))
        assert "does not let user" in error.problem
        async with connected(both, security()) as log:
            await log.admin().list_topics()
        alone = await refusal(away, security())
    assert type(alone) is BrokerUnreachable
    assert alone.problem == f'no Kafka broker answers at "{away}"'
    assert alone.detail.startswith(f"{away}: [Errno ")


@pytest.mark.parametrize("fault", ["missing", "not PEM", "another's key", "encrypted key"])
async def test_a_file_that_cannot_be_used_is_named_with_its_setting(
    broker: SecuredBroker, security: MakeSecurity, locked_key: str, tmp_path: Path, fault: str
) -> None:
    text = tmp_path / "text"
    text.write_text("not a certificate")
    given, setting, detail = {
        "missing": ({"ca_file": "/nowhere"}, 'security.ca_file "/nowhere"', "No such file"),
        "not PEM": ({"ca_file": str(text)}, f'security.ca_file "{text}"', ""),
        "another's key": ({"key_file": str(broker.server.key)}, "security.key_file", "MISMATCH"),
        "encrypted key": ({"key_file": locked_key}, "security.key_file", "encrypted"),
    }[fault]
    error = await refusal(broker.addresses["SASL_SSL"], security("client", **given))
    assert type(error) is Misconfigured
    assert setting in error.problem
    assert error.problem.endswith("cannot be used")
    assert detail in error.detail
    assert "PEM" in error.hint


async def test_a_login_without_a_password_names_the_variable(
    broker: SecuredBroker, security: MakeSecurity
) -> None:
    error = await refusal(broker.addresses["SASL_SSL"], security(password_env="STREAMKIT_TEST_NOT_SET"))
    assert type(error) is Misconfigured
    assert "needs a user name and a password" in error.problem
    assert "STREAMKIT_TEST_NOT_SET" in error.hint


def test_a_missing_openssl_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Misconfigured, match="no openssl in PATH"):
        make_identity(tmp_path, "server")


@pytest.fixture
def environment(broker: SecuredBroker) -> dict[str, str]:
    """TLS and SASL as a deployment gives them."""
    return {
        "STREAMKIT_SECURITY_PROTOCOL": "SASL_SSL",
        "STREAMKIT_SECURITY_CA_FILE": str(broker.server.certificate),
        "STREAMKIT_SECURITY_USERNAME": broker.username,
        "STREAMKIT_SASL_PASSWORD": PASSWORD,
    }


def last_counts(topic: str, total: int, worker: "subprocess.Popen[bytes]", client: dict[str, Any]) -> Any:
    """The newest count of every page, read by another client until they sum up."""
    fresh = {"group.id": "audit", "auto.offset.reset": "earliest", "isolation.level": "read_committed"}
    consumer = other.Consumer(client | fresh)
    consumer.subscribe([topic])
    counts: dict[str, int] = {}
    deadline = time.monotonic() + LIMIT_S
    while sum(counts.values()) < total and time.monotonic() < deadline and worker.poll() is None:
        record = consumer.poll(0.5)
        if record is not None and not record.error():
            counts[record.key().decode()] = int(record.value())
    consumer.close()
    return counts


def test_a_pipeline_runs_from_settings_in_the_environment(
    broker: SecuredBroker, environment: dict[str, str], tmp_path: Path
) -> None:
    space = Workspace(tmp_path, broker.addresses["SASL_SSL"])
    applied = space.run("topics", "apply", "--execute", **environment)
    assert applied.returncode == 0, applied.stderr
    client = {
        "bootstrap.servers": space.brokers,
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": broker.username,
        "sasl.password": PASSWORD,
        "ssl.ca.location": str(broker.server.certificate),
    }
    producer = other.Producer(client)
    for number in range(300):
        producer.produce(space.views, json.dumps({"page": f"page-{number % 3}"}).encode())
    assert producer.flush(LIMIT_S) == 0

    log = space.folder / "log"
    command = [space.command, "run", space.target]
    with log.open("wb") as file:
        worker = subprocess.Popen(command, cwd=tmp_path, env=space.environment(**environment), stderr=file)
    try:
        counts = last_counts(space.counts, 300, worker, client)
        assert counts == {f"page-{number}": 100 for number in range(3)}, log.read_text()
        os.kill(worker.pid, signal.SIGTERM)
        assert worker.wait(LIMIT_S) == 0, log.read_text()
    finally:
        worker.kill()
        worker.wait()
    assert "worker stopped" in log.read_text()
    assert PASSWORD not in log.read_text()


@pytest.mark.parametrize("command", ["check", "run"])
def test_a_command_with_a_wrong_password_says_so_and_fails(
    broker: SecuredBroker, environment: dict[str, str], tmp_path: Path, command: str
) -> None:
    space = Workspace(tmp_path, broker.addresses["SASL_SSL"])
    failed = space.run(command, space.target, **environment | {"STREAMKIT_SASL_PASSWORD": WRONG})
    said = failed.stdout + failed.stderr
    assert failed.returncode == 1, said
    assert 'does not let user "app" in' in said
    assert "STREAMKIT_SASL_PASSWORD" in said
    assert "Traceback" not in said
    assert WRONG not in said
