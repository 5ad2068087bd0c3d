"""A local broker that asks who is there: listeners with TLS and SASL beside the plain one.

The plain listener stays for the broker's own talk, and to tell when it is ready. Every identity is a self-signed
certificate in the broker's own folder, so nothing outlives it, and trust in one says nothing about another.
"""

import contextlib
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from streamkit.errors import Misconfigured
from streamkit.testing.broker.cluster import JvmCluster, Wishes
from streamkit.testing.broker.settings import HOST
from streamkit.testing.broker.warmup import format_folder, prepare

USERNAME = "app"
PROTOCOLS = ("SASL_SSL", "SASL_PLAINTEXT", "SSL")
SCRAM = ("SCRAM-SHA-512", "SCRAM-SHA-256")
OPENSSL_LIMIT_S = 30.0  # some 20 ms; a laden machine takes longer
_LOGIN = "org.apache.kafka.common.security"
# Who comes by the plain listener, brokers and controllers too, has no name, and needs every right.
GUARDED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
# Kafka wants the key and its certificate in one file; a name without a folder is found beside the node's settings.
_KEY_STORE = "key-store.pem"


class KeyPair(NamedTuple):
    """A key, and the certificate that proves it to whoever trusts it."""

    certificate: Path
    key: Path


class SecuredBroker(NamedTuple):
    """A running broker by its addresses, one per security protocol, and what a client needs for them."""

    addresses: dict[str, str]
    server: KeyPair
    client: KeyPair
    username: str = USERNAME


@contextlib.contextmanager
def secured_broker(
    password: str, *, folder: Path | None = None, is_guarded: bool = False
) -> Iterator[SecuredBroker]:
    """Run a broker with every security protocol, as a local JVM, until the block ends.

    The user "app" has this password for every SASL mechanism; letters and digits, since Kafka's own quoting differs
    from place to place. The listener SSL asks for the client's certificate in place of a password. A broker that is
    guarded lets nobody do anything without an ACL, but for whoever comes by the plain listener, who may do all.
    """
    kafka = prepare(lambda _text: None)
    settings = _settings(password) | (GUARDED if is_guarded else {})
    with tempfile.TemporaryDirectory(prefix="streamkit-format-") as work:
        users = [f"--add-scram={mechanism}=[name={USERNAME},password={password}]" for mechanism in SCRAM]
        kafka = kafka._replace(checkpoint=format_folder(kafka, Path(work), *users))
    cluster = JvmCluster(kafka, Wishes(folder=folder, protocols=PROTOCOLS, extra=settings))
    (node,) = cluster.nodes
    try:
        server, client = (make_identity(node.folder, name) for name in ("server", "client"))
        (node.folder / _KEY_STORE).write_text(server.key.read_text() + server.certificate.read_text())
    except BaseException:
        cluster.stop()
        raise
    with cluster.start():
        ports = {"PLAINTEXT": node.port, **node.secured}
        addresses = {protocol: f"{HOST}:{port}" for protocol, port in ports.items()}
        yield SecuredBroker(addresses, server, client)


def make_identity(folder: Path, name: str) -> KeyPair:
    """Make a key and a self-signed certificate for this host, valid for two days."""
    openssl = shutil.which("openssl")
    if openssl is None:
        raise Misconfigured("there is no openssl in PATH to make a certificate", hint="Install OpenSSL.")
    made = KeyPair(folder / f"{name}.pem", folder / f"{name}-key.pem")
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", str(made.key)]
    # Key usage is what Python 3.13 insists on in a certificate that is trusted by itself.
    extensions = [f"subjectAltName=IP:{HOST}", "keyUsage=critical,digitalSignature,keyCertSign"]
    about = ["-subj", f"/CN={name}", *(part for each in extensions for part in ("-addext", each))]
    done = subprocess.run(  # noqa: S603  (a fixed command)
        [openssl, "req", "-x509", "-days", "2", *key, *about, "-out", str(made.certificate)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=OPENSSL_LIMIT_S,
        check=False,
    )
    if done.returncode:
        raise Misconfigured("openssl made no certificate", where=str(folder), detail=done.stdout.strip())
    return made


def _settings(password: str) -> dict[str, str]:
    """Say what the secured listeners offer and whom they let in."""
    scram = f"{_LOGIN}.scram.ScramLoginModule required;"
    plain = f'{_LOGIN}.plain.PlainLoginModule required user_{USERNAME}="{password}";'
    # Without TLS a password must not travel as it is.
    logins = {
        "SASL_SSL": {**dict.fromkeys(SCRAM, scram), "PLAIN": plain},
        "SASL_PLAINTEXT": dict.fromkeys(SCRAM, scram),
    }
    settings = {
        "listener.security.protocol.map": ",".join(
            ["CONTROLLER:PLAINTEXT", *(f"{name}:{name}" for name in ("PLAINTEXT", *PROTOCOLS))]
        ),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": _KEY_STORE,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": "client.pem",
        "listener.name.ssl.ssl.client.auth": "required",
    }
    for protocol, modules in logins.items():
        listener = f"listener.name.{protocol.lower()}"
        settings[f"{listener}.sasl.enabled.mechanisms"] = ",".join(modules)
        for mechanism, module in modules.items():
            settings[f"{listener}.{mechanism.lower()}.sasl.jaas.config"] = module
    return settings
