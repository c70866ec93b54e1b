"""What every gRPC client of a broker shares: the channel's settings, and errors as the broker raised them.

A refused call carries the class of the error in its trailing metadata. A status that means that nobody has answered is
told apart from it: only the latter is tried elsewhere.

A broker that does not answer is waited for in two ways. One that has answered before is restarting, or the network is
away: it gets as long as the call allows. Where nobody has ever answered, the address is probably wrong: the connect
timeout is all it gets.

A process that was forked while its parent had a channel or a server open can never use gRPC: calls would wait for
threads that only the parent has. It is told so instead.
"""

import os
import time
import weakref
from collections.abc import Sequence

import grpc
import grpc.aio

from tidemill.client.kafka.errors import ClientError
from tidemill.client.kafka.options import parse_addresses

CONNECT_TIMEOUT_MS = 3_000
ERROR_KEY = "tidemill-error"
BACKOFF_MS_FIRST = 20
BACKOFF_MS_MAX = 1_000
MESSAGE_BYTES_MAX = 65 * 1024 * 1024
"""The largest body that a timeline can allow, and room for what goes with it."""
CHANNEL_OPTIONS = (
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
    "spawn or forkserver, or close what is open before the fork"
)


class InUse:
    """Channels and servers of this process that are open."""

    def __init__(self) -> None:
        self.open: weakref.WeakSet[grpc.aio.Channel | grpc.aio.Server] = weakref.WeakSet()
        self.lost = False
        os.register_at_fork(after_in_child=self._forked)

    def _forked(self) -> None:
        self.lost = self.lost or bool(self.open)


IN_USE = InUse()


def open_channel(address: str) -> grpc.aio.Channel:
    """A channel to a broker, which connects when it is first used."""
    if IN_USE.lost:
        raise ClientError(FORKED)
    channel = grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS)
    IN_USE.open.add(channel)
    return channel


async def close_channel(channel: grpc.aio.Channel) -> None:
    """End it, and what is called through it."""
    await channel.close()
    IN_USE.open.discard(channel)


class Contact:
    """Whether anybody has ever answered, and how long that is waited for."""

    def __init__(self, timeout_ms: int) -> None:
        self._timeout_s = timeout_ms / 1_000
        self.made = False

    def is_hopeless(self, since_s: float) -> bool:
        """Whether nobody has ever answered, and who began to try then (by the monotonic clock) has tried enough."""
        return not self.made and time.monotonic() - since_s >= self._timeout_s


def split_addresses(addresses: str | Sequence[str]) -> list[str]:
    """The addresses of the gRPC doors of brokers, given as a list or with commas; InvalidOption names a wrong one."""
    try:
        text = addresses if isinstance(addresses, str) else ",".join(addresses)
    except TypeError:
        raise TypeError(f"the address is host:port, or a list of such: not {addresses!r}") from None
    return [str(address) for address in parse_addresses(text, name="address")]


def nobody_answers(error: grpc.aio.AioRpcError, address: str) -> str:
    """The one line for a call that nobody answered."""
    unknown = "resolv" in (error.details() or "")
    return (
        f"no broker answers at {address}: the name is not known here"
        if unknown
        else f"no broker answers at {address}; start one with: tidemill serve"
    )


def error_name(error: grpc.aio.AioRpcError) -> str | None:
    """The class of the error that the broker raised, if it did."""
    for key, value in error.trailing_metadata() or ():
        if key == ERROR_KEY:
            return str(value)
    return None
