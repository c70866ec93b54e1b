"""Connects commands to the HTTP server of a broker, with the client settings that are used for Kafka too."""

from http.client import BadStatusLine, HTTPException, RemoteDisconnected
from typing import TYPE_CHECKING, NamedTuple

from tidemill.cli.connection import broker_at
from tidemill.cli.errors import CommandFailed, WrongUse
from tidemill.cli.output import remark

if TYPE_CHECKING:
    import ssl

    from tidemill.client.kafka.options import ClientOptions, Credentials

LOGIN_HINT = "see --client security.protocol, sasl.username and sasl.password"
UNAUTHORIZED, FORBIDDEN = 401, 403


class HttpAddress(NamedTuple):
    """The address of an HTTP server, and how to connect to it."""

    shown: str
    url: str
    context: "ssl.SSLContext | None" = None
    credentials: "Credentials | None" = None


def http_address(text: str, client: list[str] | None) -> HttpAddress:
    """Parse --http (host:port, or a URL as in the ready line) and --client."""
    from tidemill.client.kafka.errors import InvalidClientOption
    from tidemill.client.kafka.options import parse_options
    from tidemill.client.kafka.tls import tls_context
    from tidemill.model.addresses import parse_address
    from tidemill.model.errors import InvalidConfig

    scheme, separator, place = text.rstrip("/").rpartition("://")
    if scheme not in {"http", "https"} and separator:
        raise WrongUse(f"--http {text[:80]!r} is not host:port; write for example 127.0.0.1:8080")
    try:
        where = parse_address(place)
    except InvalidConfig as error:
        raise WrongUse(f"--http {error}") from None
    options = dict(broker_at(None, client).options)
    if scheme == "https":
        options["security.protocol"] = _over_tls(options.get("security.protocol", "PLAINTEXT"))
    parsed = parse_options(options)
    if scheme == "http" and parsed.tls is not None:
        raise WrongUse(f"--http {text[:80]} uses no TLS, but security.protocol={options['security.protocol']} does")
    try:
        context = None if parsed.tls is None else tls_context(parsed.tls)
    except InvalidClientOption as error:
        raise WrongUse(str(error)) from None
    _warn_of_clear_password(parsed, where.host, str(where))
    return HttpAddress(str(where), f"http{'' if context is None else 's'}://{where}", context, parsed.credentials)


def post(address: HttpAddress, path: str, body: bytes, *, timeout_s: float) -> bytes:
    """Send JSON and return the answer. CommandFailed says in one line what is wrong."""
    from urllib.error import HTTPError
    from urllib.request import Request

    from tidemill.client.http import fetch

    headers = {"content-type": "application/json", **_login(address.credentials)}
    try:
        return fetch(
            Request(f"{address.url}{path}", data=body, headers=headers),  # noqa: S310 -- http or https
            timeout_s=timeout_s,
            context=address.context,
        )
    except HTTPError as error:
        with error:
            raise CommandFailed(_refusal(error.read(), error.code, address)) from None
    except (HTTPException, OSError) as error:
        raise CommandFailed(_no_answer(error, address)) from None


def _over_tls(protocol: str) -> str:
    return {"PLAINTEXT": "SSL", "SASL_PLAINTEXT": "SASL_SSL"}.get(protocol.upper(), protocol)


def _login(credentials: "Credentials | None") -> dict[str, str]:
    from base64 import b64encode

    if credentials is None:
        return {}
    pair = f"{credentials.username}:{credentials.password}".encode()
    return {"authorization": f"Basic {b64encode(pair).decode()}"}


def _warn_of_clear_password(options: "ClientOptions", host: str, shown: str) -> None:
    """Over HTTP the password itself is sent, also where Kafka clients use SCRAM."""
    from tidemill.model.listeners import is_local

    if options.credentials is not None and options.tls is None and not is_local(host):
        remark(f"warning: the password is sent to {shown} without encryption; use security.protocol=SASL_SSL")


def _refusal(body: bytes, status: int, address: HttpAddress) -> str:
    import json

    if status == UNAUTHORIZED:
        if address.credentials is None:
            return f"{address.shown} requires a login; {LOGIN_HINT}"
        return f"{address.shown} rejects user {address.credentials.username}: the user or the password is wrong"
    try:
        return str(json.loads(body)["error"])
    except (ValueError, KeyError, TypeError):
        if address.context is None and b"uses TLS" in body:
            return f"{address.shown} uses TLS; write https://{address.shown}"
        what = f"{address.shown} answers with HTTP {status}"
        return f"{what}; check that it is the HTTP address of a Tidemill broker"


def _no_answer(error: HTTPException | OSError, address: HttpAddress) -> str:
    import ssl

    from tidemill.client.kafka.tls import verification_advice

    reason = getattr(error, "reason", error)
    if isinstance(reason, ssl.SSLCertVerificationError):
        advice = verification_advice(reason, "ssl.ca.location")
        return f"{address.shown}: {reason.verify_message}; {advice}, see --client"
    if isinstance(reason, ssl.SSLError):
        why = reason.reason or str(reason)
        return f"the TLS handshake with {address.shown} failed: {why}; check that it uses TLS, see --client"
    if address.context is None and isinstance(reason, RemoteDisconnected | ConnectionResetError):
        return f"{address.shown} closes the connection without an answer; if it uses TLS, write https://{address.shown}"
    shown = "it does not use HTTP" if type(error) is BadStatusLine else reason
    start = "start one with: tidemill serve, or set its address with --http"
    return f"no broker answers at {address.shown} ({shown}); {start}"
