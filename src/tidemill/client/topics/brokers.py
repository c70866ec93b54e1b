"""The connections of a BrokerService client: any broker answers, and a broker that does not answer is skipped.

A call goes to the current broker. If it does not answer, the client switches to the next address and retries after a
pause. The pause is 50 ms at first, doubles each time, and is 5 s at most. If no broker has ever answered, the client
retries only for the connect timeout. If the current broker has only the overseer role, a consumer asks it for carriers;
these come before the configured addresses. Calls that benefit from a direct path go to the partition's leader, whose
address comes from `GetMetadata`.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any

import grpc
import grpc.aio

from tidemill.client.broker_selection import SelectionTerms, carriers, new_client_id, reachable
from tidemill.client.grpc_security import GrpcSecurity
from tidemill.client.kafka.errors import BrokerUnreachable, ClientError
from tidemill.client.rpc import (
    UNREACHABLE,
    Contact,
    RpcChannel,
    close_channel,
    error_name,
    no_answer_text,
    open_channel,
    retry_after_ms,
    split_addresses,
    was_cancelled,
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
    """Return the pause before the next attempt; the first is attempt 0."""
    return min(BACKOFF_MS * int(BACKOFF_GROWTH ** min(attempt, DOUBLINGS_MAX)), BACKOFF_MS_MAX)


class Brokers:
    """Calls to a cluster, on the event loop of the first call."""

    def __init__(
        self,
        addresses: str | Sequence[str],
        *,
        connect_timeout_ms: int,
        security: GrpcSecurity,
        follow_hints: bool = True,
    ) -> None:
        self._security = security
        self._follow_hints = follow_hints
        self._client_id = new_client_id()
        self._given = self._addresses = split_addresses(addresses)
        self.contact = Contact(connect_timeout_ms)
        self._in_use = 0
        self._stubs: dict[str, tuple[RpcChannel, Any]] = {}
        self._leaders: Mapping[tuple[str, int], str] = {}

    @property
    def address(self) -> str:
        """The address of the current broker."""
        return self._addresses[self._in_use]

    def switch(self, unreachable: str) -> None:
        """Switch to the next address, unless another call has done so already."""
        if unreachable == self.address:
            self._in_use = (self._in_use + 1) % len(self._addresses)

    async def settle(self, topic: str) -> None:
        """Switch to the brokers that the current one names; the configured addresses stay the last resort."""
        terms = SelectionTerms(topic, client_id=self._client_id, follows=self._follow_hints)
        found = await carriers(self._stub(self.address)[0], terms, self._security)
        if found:
            self.contact.made = True
            self.prefer(found)

    def prefer(self, addresses: Sequence[str]) -> None:
        """Use these addresses first, before the configured ones."""
        self._addresses, self._in_use = [*addresses, *self._given], 0

    async def is_reachable(self, address: str) -> bool:
        """Whether a connection to this address can be opened."""
        return bool(await reachable([address], self._security))

    def leader_of(self, topic: str, partition: int) -> str:
        """Return the address of a partition's leader; the current broker if that is unknown."""
        return self._leaders.get((topic, partition)) or self.address

    async def refresh(self, topic: str, *, timeout_ms: int = CALL_TIMEOUT_MS) -> wire.TopicInfo | None:
        """Fetch the leaders of the topic's partitions; None when the topic does not exist."""
        request = wire.GetMetadataRequest(topics=[topic])
        reply: wire.GetMetadataReply = await self.call("GetMetadata", request, timeout_ms=timeout_ms)
        where = {broker.node_id: broker.address for broker in reply.brokers}
        info: wire.TopicInfo | None = next(iter(reply.topics), None)
        if info is not None:
            self._leaders = {(info.name, one.partition): where.get(one.leader, "") for one in info.partitions}
        return info

    async def call(self, method: str, request: Any, *, timeout_ms: int = CALL_TIMEOUT_MS) -> Any:
        """Call any broker, and retry at others while none answers, up to the deadline."""
        began = time.monotonic()
        ends = began + timeout_ms / 1_000
        attempt = 0
        while True:
            left_ms = max(1, round((ends - time.monotonic()) * 1_000))
            try:
                return await self.call_at(self.address, method, request, timeout_ms=left_ms)
            except TidemillError as error:
                pause_s = max(backoff_ms(attempt), error.retry_after_ms) / 1_000
                if not error.retriable or time.monotonic() + pause_s >= ends or self.contact.is_hopeless(began):
                    raise
            await asyncio.sleep(pause_s)
            attempt += 1

    async def call_at(self, address: str, method: str, request: Any, *, timeout_ms: int = CALL_TIMEOUT_MS) -> Any:
        """Call one broker, once."""
        channel, stub = self._stub(address)
        try:
            reply = await getattr(stub, method)(request, timeout=timeout_ms / 1_000)
        except grpc.aio.AioRpcError as error:
            failure = _typed(error, address if self.contact.made else ", ".join(self._given))
            failure.retry_after_ms = retry_after_ms(error)
        except asyncio.CancelledError:
            if was_cancelled():
                raise
            failure = BrokerUnreachable(f"the connection to {address} was lost")
        else:
            self.contact.made = True
            return reply
        if isinstance(failure, BrokerUnreachable):
            self.switch(address)
            await self._drop(address, channel)
        else:
            self.contact.made = True
        raise failure

    def _stub(self, address: str) -> tuple[RpcChannel, Any]:
        if address not in self._stubs:
            channel = open_channel(address, self._security)
            self._stubs[address] = channel, generated.BrokerServiceStub(channel)
        return self._stubs[address]

    async def _drop(self, address: str, channel: RpcChannel) -> None:
        """Close a connection that failed, unless another call has replaced it. Its other calls fail, too."""
        if address in self._stubs and self._stubs[address][0] is channel:
            del self._stubs[address]
            await close_channel(channel)

    async def close(self) -> None:
        """Close every connection."""
        for address, (channel, _) in list(self._stubs.items()):
            await self._drop(address, channel)


def _typed(error: grpc.aio.AioRpcError, address: str) -> TidemillError:
    name = error_name(error)
    kind = by_name(name or "")
    if name is not None and kind is not UnknownServerError:
        return kind(error.details() or "")
    if name is not None and error.code() is grpc.StatusCode.UNAVAILABLE:
        return LeaderNotAvailable(error.details() or "")  # the broker reports a temporary error
    if error.code() in UNREACHABLE:
        return BrokerUnreachable(no_answer_text(error, address))
    return ClientError(f"{address}: {error.code().name}: {error.details()}")
