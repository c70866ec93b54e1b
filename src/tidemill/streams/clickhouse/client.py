"""The only module that uses the ClickHouse client and the embedded engine. Blocking calls run on dedicated threads.

A `Lane` is a thread with a client. Its calls run in order, and a slow query on one lane does not delay inserts on
another. The client connects on first use, and again after the server was unreachable. Both libraries are imported here
and only when a lane is used, so that a broker with segment files does not load them.
"""

import asyncio
import logging
import re
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from tidemill.streams.clickhouse.counted_connections import count_connections
from tidemill.streams.clickhouse.errors import (
    CERTAIN_CODES,
    EngineClosed,
    EngineError,
    EngineRefused,
    EngineUncertain,
    EngineUnreachable,
)
from tidemill.streams.clickhouse.url import Server, ServerLayout
from tidemill.tcp_connections import TcpTraffic

CONNECT_TIMEOUT_S = 5
ANSWER_TIMEOUT_S = 60
SETTINGS: Mapping[str, Any] = {
    # Strings arrive as bytes, because a key, a value or a header name need not be UTF-8.
    "output_format_arrow_string_as_string": 0,
    "output_format_arrow_compression_method": "none",
    # The response to an insert means that it is stored. The token covers the insert through a view too.
    "async_insert": 0,
    "insert_deduplicate": 1,
    "deduplicate_blocks_in_dependent_materialized_views": 1,
    # A deletion or change is complete when the server responds.
    "mutations_sync": 2,
    "lightweight_deletes_sync": 2,
}
REPLICATED_SETTINGS: Mapping[str, Any] = {
    # An acknowledged insert is on most replicas, so with two replicas on both. A replica that was dropped does not
    # count.
    "insert_quorum": "auto",
    # A deletion does not wait for a replica that is down. A take-over waits until the replica has caught up.
    "mutations_sync": 1,
    "lightweight_deletes_sync": 1,
}
_ATTEMPT = re.compile(r"executing HTTP request attempt (\d+)")
_NEVER_SENT = ("NewConnectionError", "ConnectionRefusedError", "ConnectTimeoutError", "gaierror")
_LIBRARIES = ("clickhouse_connect", "urllib3.connectionpool")
"""These libraries log warnings for conditions that this module raises as errors, so they are silenced."""
_NOT_TRUSTED = "SSLCertVerificationError"
_CERTIFICATE_ALERTS = ("ALERT_CERTIFICATE_REQUIRED", "ALERT_UNKNOWN_CA", "ALERT_BAD_CERTIFICATE")
_CLOSED_BY_SERVER = "SSLEOFError"
_NOT_LET_IN = frozenset({192, 193, 194, 516})

T = TypeVar("T")


class Lane:
    """A thread with a connection to one server."""

    def __init__(
        self,
        layout: ServerLayout,
        server: Server,
        purpose: str,
        settings: Mapping[str, Any] | None = None,
        traffic: TcpTraffic | None = None,
    ) -> None:
        self._layout = layout
        self._traffic = traffic
        defaults = {**SETTINGS, **REPLICATED_SETTINGS} if layout.replicated else SETTINGS
        self._settings = defaults if settings is None else settings
        self._server = server
        self._client: Any = None
        self._closed = False
        self._thread = ThreadPoolExecutor(1, f"clickhouse-{purpose}")

    async def run(self, call: Callable[[Any], T]) -> T:
        """Run `call` with the client and return its result. Raise EngineError when it fails."""
        if self._closed:
            raise EngineClosed
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._call, call)

    async def close(self) -> None:
        """Close the client after the running calls."""
        self._closed = True
        await asyncio.get_running_loop().run_in_executor(self._thread, self._disconnect)
        self._thread.shutdown(wait=False)

    def _call(self, call: Callable[[Any], T]) -> T:
        try:
            if self._client is None:
                self._client = connect(self._layout, self._server, self._settings, self._traffic)
            return call(self._client)
        except EngineError:
            raise
        except Exception as error:
            if self._layout.embedded:
                self._disconnect()  # the partial output of a failed query would be the start of the next response
            raise translate(error, self._server) from error

    def _disconnect(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()
            if not self._layout.embedded:
                client.http.clear()


def connect(
    layout: ServerLayout, server: Server, settings: Mapping[str, Any], traffic: TcpTraffic | None = None
) -> Any:
    """Connect to this server. The database may not exist yet."""
    from clickhouse_connect.driver import create_client  # noqa: PLC0415 -- an optional extra, and slow to load
    from clickhouse_connect.driver.httputil import get_pool_manager  # noqa: PLC0415

    for library in _LIBRARIES:
        logging.getLogger(library).setLevel(logging.ERROR)
    client: Any
    if layout.embedded:
        client = create_client(dsn=f"chdb://{server.path}", settings=dict(settings))
    else:
        client = create_client(
            host=server.host,
            port=server.port,
            username=layout.username or None,
            password=layout.password,
            secure=layout.secure,
            ca_cert=layout.ca or None,
            client_cert=layout.cert or None,
            client_cert_key=layout.key or None,
            # Without a password the certificate is the login; with one, both are checked.
            tls_mode="strict" if layout.cert and layout.password else None,
            connect_timeout=CONNECT_TIMEOUT_S,
            send_receive_timeout=ANSWER_TIMEOUT_S,
            autogenerate_session_id=False,
            settings=dict(settings),
            # Clients share a pool otherwise. With TLS each has its own, for its certificates.
            pool_mgr=None if layout.secure else get_pool_manager(),
        )
        if traffic is not None:
            count_connections(client.http, traffic)
    return client


def translate(error: Exception, server: Server) -> EngineError:
    """Convert a library error to an EngineError that says whether the outcome is certain."""
    where = f"ClickHouse at {server.name}"
    code = getattr(error, "code", None)
    if code in _NOT_LET_IN:
        refused = EngineRefused(f"{where} rejected the login; check user and password in --streams")
        refused.reason = code
        return refused
    if code is not None:
        text = f"{where} rejected the statement with code {code}: {_first_line(error)}"
        translated = EngineRefused(text) if code in CERTAIN_CODES else EngineUncertain(text)
        translated.reason = code
        return translated
    causes = {type(each).__name__: each for each in _causes(error)}
    if _NOT_TRUSTED in causes:
        reason = getattr(causes[_NOT_TRUSTED], "verify_message", "")
        return EngineRefused(
            f"the certificate of {where} is not trusted ({reason}); name the CA that signed it with ?ca=FILE"
        )
    texts = " ".join(map(str, causes.values()))
    if any(alert in texts for alert in _CERTIFICATE_ALERTS):
        return EngineRefused(f"{where} rejected the client certificate; check ?cert=FILE&key=FILE in --streams")
    if _CLOSED_BY_SERVER in texts:  # a server may close in the handshake, before the client reads why
        return EngineUncertain(f"{where} closed the TLS connection; it may require ?cert=FILE&key=FILE in --streams")
    if not causes.keys().isdisjoint(_NEVER_SENT) and not _is_repeat(texts):
        return EngineUnreachable(f"{where} cannot be reached: {_first_line(error)}")
    return EngineUncertain(f"{where} did not respond: {_first_line(error)}")


def _is_repeat(texts: str) -> bool:
    """Whether the library had sent the request before: it repeats some inserts when a connection closes."""
    attempt = _ATTEMPT.search(texts)
    return attempt is not None and int(attempt.group(1)) > 1


def _causes(error: BaseException) -> list[BaseException]:
    found: list[BaseException] = []
    seen: Any = error
    while isinstance(seen, BaseException) and seen not in found:
        found.append(seen)
        seen = seen.__cause__ or seen.__context__ or getattr(seen, "reason", None)
    return found


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:300]
