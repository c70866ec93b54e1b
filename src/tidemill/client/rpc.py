"""The common parts of the gRPC clients: channel settings, and errors as the broker raised them.

A rejected call carries the class of the error in its trailing metadata. A status without it means that no broker
answered: only then is the call tried at another broker.

There are two time limits for a broker that does not answer. If it has answered before, it is restarting or the network
is interrupted: it gets as long as the call allows. If no broker has ever answered, the address is probably wrong: only
the connect timeout applies.

A process that was forked while its parent had an open channel or server can never use gRPC: calls would wait for
threads that only the parent has. Such a call raises an error instead.
"""

import asyncio
import os
import time
import weakref
from collections.abc import Sequence
from typing import TypeAlias

import grpc
import grpc.aio

from tidemill.client.grpc_security import GrpcSecurity
from tidemill.client.kafka.errors import ClientError
from tidemill.client.kafka.options import parse_addresses
from tidemill.client.login_channel import LoginChannel

CONNECT_TIMEOUT_MS = 3_000
ERROR_KEY = "tidemill-error"
RETRY_AFTER_KEY = "tidemill-retry-after-ms"
RETRY_AFTER_MS_MAX = 60_000
"""No client waits for longer, whatever a server asks for."""
BACKOFF_MS_FIRST = 20
BACKOFF_MS_MAX = 1_000
MESSAGE_BYTES_MAX = 65 * 1024 * 1024
"""The largest body that a timeline can allow, plus space for its other fields."""
METADATA_BYTES_MAX = 32 * 1024
"""Space for a login by a large token."""
CHANNEL_OPTIONS = (
    ("grpc.max_metadata_size", METADATA_BYTES_MAX),
    ("grpc.absolute_max_metadata_size", METADATA_BYTES_MAX),
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
    ("grpc.initial_reconnect_backoff_ms", BACKOFF_MS_FIRST),
    ("grpc.min_reconnect_backoff_ms", BACKOFF_MS_FIRST),
    ("grpc.max_reconnect_backoff_ms", BACKOFF_MS_MAX),
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.enable_http_proxy", 0),  # see `http.py`
)
UNREACHABLE = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED)
FORKED = (
    "gRPC was in use when this process was forked, and cannot work here: start processes with multiprocessing's "
    "spawn or forkserver, or close open clients before the fork"
)


RpcChannel: TypeAlias = "grpc.aio.Channel | LoginChannel"


class InUse:
    """The open channels and servers of this process."""

    def __init__(self) -> None:
        self.open: weakref.WeakSet[RpcChannel | grpc.aio.Server] = weakref.WeakSet()
        self.lost = False
        os.register_at_fork(after_in_child=self._forked)

    def _forked(self) -> None:
        self.lost = self.lost or bool(self.open)


IN_USE = InUse()


def open_channel(address: str, security: GrpcSecurity) -> RpcChannel:
    """Open a channel to a broker; it connects when it is first used."""
    if IN_USE.lost:
        raise ClientError(FORKED)
    security.check(address)
    credentials = security.credentials()
    plain: grpc.aio.Channel = (
        grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS)
        if credentials is None
        else grpc.aio.secure_channel(address, credentials, options=CHANNEL_OPTIONS)
    )
    channel = plain if security.login is None else LoginChannel(plain, security.login)
    IN_USE.open.add(channel)
    return channel


async def close_channel(channel: RpcChannel) -> None:
    """Close a channel, and end its calls."""
    await channel.close()
    IN_USE.open.discard(channel)


def was_cancelled() -> bool:
    """Whether a CancelledError of a call came from a cancelled task. Otherwise another call has closed the channel."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


class Contact:
    """Whether any broker has ever answered, and how long to wait for the first answer."""

    def __init__(self, timeout_ms: int) -> None:
        self._timeout_s = timeout_ms / 1_000
        self.made = False

    def is_hopeless(self, since_s: float) -> bool:
        """Whether no broker has ever answered within the connect timeout since `since_s` (monotonic clock)."""
        return not self.made and time.monotonic() - since_s >= self._timeout_s


def split_addresses(addresses: str | Sequence[str]) -> list[str]:
    """Split the gRPC addresses of brokers, given as a list or with commas. InvalidOption names a wrong one."""
    try:
        text = addresses if isinstance(addresses, str) else ",".join(addresses)
    except TypeError:
        raise TypeError(f"the address is {addresses!r}; it must be host:port, or a list of them") from None
    return [str(address) for address in parse_addresses(text, name="address")]


def no_answer_text(error: grpc.aio.AioRpcError, address: str) -> str:
    """Return the error text of a call that no broker answered."""
    details = error.details() or ""
    if "resolv" in details:
        return f"no broker answers at {address}: the host name cannot be resolved"
    if "CERTIFICATE_VERIFY_FAILED" in details:
        return (
            f"the certificate of the broker at {address} is not trusted; set ssl.ca.location to the CA that signed it"
        )
    if "not in peer certificate" in details or "Hostname Verification" in details:
        return f"the certificate of the broker at {address} is for another name; connect to a name that it has"
    if "andshake" in details:
        return (
            f"the TLS handshake with {address} failed; check that the server uses TLS, and whether it requires a "
            "client certificate (ssl.certificate.location)"
        )
    if "ocket closed" in details:
        return f"the server at {address} closes the connection; if it uses TLS, set security.protocol=SASL_SSL or SSL"
    return f"no broker answers at {address}; start one with: tidemill serve"


def retry_after_ms(error: grpc.aio.AioRpcError) -> int:
    """Return for how long the broker asks the client to wait before the next call."""
    for key, value in error.trailing_metadata() or ():
        if key == RETRY_AFTER_KEY and str(value).isdecimal():
            return min(int(value), RETRY_AFTER_MS_MAX)
    return 0


def error_name(error: grpc.aio.AioRpcError) -> str | None:
    """Return the class name of the error that the broker raised, if it did."""
    for key, value in error.trailing_metadata() or ():
        if key == ERROR_KEY:
            return str(value)
    return None
