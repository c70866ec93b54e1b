"""The brokers as a client of BrokerService sees them: any of them answers, and one that does not is passed over.

A call goes to the broker that is in use; when nobody answers there, the next address takes its place and the call is
tried again after a pause, 50 ms at first and twice as long each time, 5 s at most; where nobody has ever answered, only
for as long as the connect timeout. Where the broker in use only
oversees, a consumer lets it name carriers, which come before the addresses that were given. Calls that are worth a
direct way go to the partition's leader, whose address `GetMetadata` told.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any

import grpc
import grpc.aio

from tidemill.client.broker_selection import carriers
from tidemill.client.kafka.errors import BrokerUnreachable, ClientError
from tidemill.client.rpc import (
    UNREACHABLE,
    Contact,
    close_channel,
    error_name,
    nobody_answers,
    open_channel,
    split_addresses,
)
from tidemill.model.errors import LeaderNotAvailable, TidemillError, UnknownServerError, by_name
from tidemill.wire.grpc import broker_pb2 as wire
from tidemill.wire.grpc import broker_pb2_grpc as generated

BACKOFF_MS = 50
BACKOFF_MS_MAX = 5_000
BACKOFF_GROWTH = 2
DOUBLINGS_MAX = 16
CALL_TIMEOUT_MS = 10_000


def backoff_ms(attempt: int) -> int:
    """The pause before the next attempt; the first is attempt 0."""
    return min(BACKOFF_MS * int(BACKOFF_GROWTH ** min(attempt, DOUBLINGS_MAX)), BACKOFF_MS_MAX)


class Brokers:
    """Calls to a cluster, on the event loop that makes the first of them."""

    def __init__(self, addresses: str | Sequence[str], *, connect_timeout_ms: int) -> None:
        self._given = self._addresses = split_addresses(addresses)
        self.contact = Contact(connect_timeout_ms)
        self._in_use = 0
        self._stubs: dict[str, tuple[grpc.aio.Channel, Any]] = {}
        self._leaders: Mapping[tuple[str, int], str] = {}

    @property
    def address(self) -> str:
        """The broker in use."""
        return self._addresses[self._in_use]

    def switch(self, unreachable: str) -> None:
        """Nobody answers there: go on with the next address, unless somebody has already."""
        if unreachable == self.address:
            self._in_use = (self._in_use + 1) % len(self._addresses)

    async def settle(self, topic: str) -> None:
        """Go on with a carrier, where the broker in use is none; the addresses that were given stay the last resort."""
        found = await carriers(self._stub(self.address)[0], topic=topic)
        if found:
            self.contact.made = True
            self._addresses, self._in_use = [*found, *self._given], 0

    def leader_of(self, topic: str, partition: int) -> str:
        """Where the leader of a partition is; the broker in use where that is not known."""
        return self._leaders.get((topic, partition)) or self.address

    async def refresh(self, topic: str, *, timeout_ms: int = CALL_TIMEOUT_MS) -> wire.TopicInfo | None:
        """Learn who leads the topic's partitions; None when there is no such topic."""
        request = wire.GetMetadataRequest(topics=[topic])
        reply: wire.GetMetadataReply = await self.call("GetMetadata", request, timeout_ms=timeout_ms)
        where = {broker.node_id: broker.address for broker in reply.brokers}
        info: wire.TopicInfo | None = next(iter(reply.topics), None)
        if info is not None:
            self._leaders = {(info.name, one.partition): where.get(one.leader, "") for one in info.partitions}
        return info

    async def call(self, method: str, request: Any, *, timeout_ms: int = CALL_TIMEOUT_MS) -> Any:
        """Call any broker, and try again elsewhere while nobody answers, up to the deadline."""
        began = time.monotonic()
        ends = began + timeout_ms / 1_000
        attempt = 0
        while True:
            left_ms = max(1, round((ends - time.monotonic()) * 1_000))
            try:
                return await self.call_at(self.address, method, request, timeout_ms=left_ms)
            except TidemillError as error:
                pause_s = backoff_ms(attempt) / 1_000
                if not error.retriable or time.monotonic() + pause_s >= ends or self.contact.is_hopeless(began):
                    raise
            await asyncio.sleep(pause_s)
            attempt += 1

    async def call_at(self, address: str, method: str, request: Any, *, timeout_ms: int = CALL_TIMEOUT_MS) -> Any:
        """Call one broker, once."""
        try:
            reply = await getattr(self._stub(address)[1], method)(request, timeout=timeout_ms / 1_000)
        except grpc.aio.AioRpcError as error:
            failure = _typed(error, address if self.contact.made else ", ".join(self._given))
        else:
            self.contact.made = True
            return reply
        if isinstance(failure, BrokerUnreachable):
            self.switch(address)
            await self._drop(address)
        else:
            self.contact.made = True
        raise failure

    def _stub(self, address: str) -> tuple[grpc.aio.Channel, Any]:
        if address not in self._stubs:
            channel = open_channel(address)
            self._stubs[address] = channel, generated.BrokerServiceStub(channel)
        return self._stubs[address]

    async def _drop(self, address: str) -> None:
        """A connection that failed is not used again."""
        stub = self._stubs.pop(address, None)
        if stub is not None:
            await close_channel(stub[0])

    async def close(self) -> None:
        """Close every connection."""
        for address in list(self._stubs):
            await self._drop(address)


def _typed(error: grpc.aio.AioRpcError, address: str) -> TidemillError:
    name = error_name(error)
    kind = by_name(name or "")
    if name is not None and kind is not UnknownServerError:
        return kind(error.details() or "")
    if name is not None and error.code() is grpc.StatusCode.UNAVAILABLE:
        return LeaderNotAvailable(error.details() or "")  # a broker that says: not now
    if error.code() in UNREACHABLE:
        return BrokerUnreachable(nobody_answers(error, address))
    return ClientError(f"{address}: {error.code().name}: {error.details()}")
