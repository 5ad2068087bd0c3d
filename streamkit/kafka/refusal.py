"""Why no broker took us in: the client says only that none did, so we knock once more and look at what comes back.

A broker that refuses us says so at once, and again at every try: a person must act. Silence, and a connection that
ends without a word, may pass. Of the client this uses `create_conn`; `tests/kafka/test_secured_broker.py` sees every
refusal come from a real broker.
"""

import asyncio
import ssl
from collections.abc import Mapping, Sequence
from typing import Any

from aiokafka.conn import create_conn
from aiokafka.errors import (
    IllegalSaslStateError,
    KafkaConnectionError,
    KafkaError,
    SaslAuthenticationFailed,
    UnsupportedSaslMechanismError,
)
from aiokafka.protocol.metadata import MetadataRequest

from streamkit.config import Security
from streamkit.errors import BrokerUnreachable, Misconfigured

# A refusal takes less than a second, a laden broker more; who was silent has been waited for already.
KNOCK_S = 5.0
# The two first bytes of a TLS alert, which a client without TLS takes for the size of an answer.
_TLS_ALERT = b"\x15\x03"
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_WRONG_NAME = (62, 64)  # OpenSSL's X509_V_ERR_HOSTNAME_MISMATCH and X509_V_ERR_IP_ADDRESS_MISMATCH


async def explain(
    brokers: str, hosts: Sequence[tuple[str, int]], security: Security, arguments: Mapping[str, Any]
) -> Misconfigured | BrokerUnreachable:
    """Say why none of these hosts took us in; one that refuses us tells more than one that is silent."""
    errors = await asyncio.gather(*(_knock(host, port, arguments) for host, port in hosts))
    met = [(f"{host}:{port}", error) for (host, port), error in zip(hosts, errors, strict=True)]
    judged = [judge(address, error, security) for address, error in met if error is not None]
    for kind in (Misconfigured, BrokerUnreachable):
        for refusal in judged:
            if isinstance(refusal, kind):
                return refusal
    return BrokerUnreachable(
        f'no Kafka broker answers at "{brokers}"',
        detail="\n".join(f"{address}: {_words(error)}" for address, error in met),
        hint="start one with `streamkit dev`, or set --brokers or STREAMKIT_BROKERS",
    )


async def _knock(host: str, port: int, arguments: Mapping[str, Any]) -> Exception | None:
    """Do what the client does first, and keep what it forgets: the error. None if this time all went well."""
    try:
        async with asyncio.timeout(KNOCK_S):
            connection = await create_conn(host, port, **arguments)
            try:
                await connection.send(MetadataRequest([]))
            finally:
                connection.close()
    except (KafkaError, OSError) as error:  # a TimeoutError is an OSError
        return error
    return None


def judge(address: str, error: Exception, security: Security) -> Misconfigured | BrokerUnreachable | None:
    """Tell what the broker at this address holds against us; None if it said nothing at all."""
    match error:
        case SaslAuthenticationFailed() | UnsupportedSaslMechanismError() | IllegalSaslStateError():
            return _judge_login(address, error, security)
        case ssl.SSLCertVerificationError():
            return _not_trusted(address, error, security)
        case KafkaConnectionError(__cause__=Exception() as cause):
            return _judge_end(address, cause, security)
        case KafkaConnectionError() | ConnectionResetError() | ssl.SSLError():
            return _judge_end(address, error, security)
        case _:
            return None


def _judge_login(address: str, error: KafkaError, security: Security) -> Misconfigured:
    """We said who we are, and that was wrong."""
    match error:
        case SaslAuthenticationFailed():
            problem = f'the broker does not let user "{security.username}" in with this password'
            hint = f"check security.username, and the password in {security.password_place}"
        case UnsupportedSaslMechanismError():
            problem = f"the broker does not offer the SASL mechanism {security.sasl_mechanism}"
            hint = "set security.sasl_mechanism to one of the listener's sasl.enabled.mechanisms"
        case _:
            problem = f"the broker asks for no user here, and security.protocol is {security.protocol}"
            plain = security.protocol.removeprefix("SASL_")
            hint = f"set security.protocol to {plain}, or use the address of a listener with SASL"
    detail = str(error) if isinstance(error, SaslAuthenticationFailed) else ""  # the others show an object
    return Misconfigured(problem, where=address, detail=detail, hint=hint)


def _judge_end(address: str, cause: Exception, security: Security) -> Misconfigured | BrokerUnreachable:
    """Somebody took the connection and ended it."""
    match cause:
        case asyncio.IncompleteReadError(expected=int(size)) if size.to_bytes(4, "big")[:2] == _TLS_ALERT:
            return Misconfigured(
                f"the broker speaks TLS here, and security.protocol is {security.protocol}",
                where=address,
                hint="set security.protocol to SSL or SASL_SSL, or use the address of a listener without TLS",
            )
        case ssl.SSLError(reason=str(reason)) if "CERTIFICATE" in reason:
            given = security.certificate_file
            return Misconfigured(
                f'the broker refuses our certificate "{given}"'
                if given
                else "the broker asks for a certificate",
                where=address,
                detail=str(cause),
                hint="set security.certificate_file and security.key_file to a pair that the broker trusts",
            )
    others = ", ".join(protocol for protocol in _PROTOCOLS if protocol != security.protocol)
    return BrokerUnreachable(
        "the broker ended the connection without an answer",
        where=address,
        detail=_words(cause),
        hint=f"security.protocol is {security.protocol}; a listener that expects another one ({others}) does this",
    )


def _not_trusted(address: str, error: ssl.SSLCertVerificationError, security: Security) -> Misconfigured:
    trusted = f'"{security.ca_file}"' if security.ca_file else "the system's list of authorities"
    hint = f"set security.ca_file to the PEM file of the authority that signed it; now {trusted} is asked"
    if error.verify_code in _WRONG_NAME:
        hint = "use a name of the broker that stands in its certificate, or have one made for this name"
    return Misconfigured(
        "the broker's certificate is not trusted", where=address, detail=error.verify_message, hint=hint
    )


def _words(error: Exception | None) -> str:
    return "answered the second time" if error is None else str(error) or type(error).__name__
