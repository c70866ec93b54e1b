"""Finds the coordinator of a share partition, on this broker or on another one."""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection
from typing import Any
from uuid import UUID

from tidemill.client.kafka.apis import ClientApi
from tidemill.client.kafka.errors import ClientError
from tidemill.client.kafka.peer_connection import PeerConnection
from tidemill.client.kafka.share_state_requests import (
    DELETE,
    INITIALIZE,
    READ,
    SUMMARY,
    WRITE,
    share_state_request,
    share_state_result,
)
from tidemill.model.errors import CoordinatorNotAvailable, TidemillError
from tidemill.shares.coordinator import ShareCoordinator
from tidemill.shares.core.durable_state import NO_START, ShareKey, StateWrite, readable_batches
from tidemill.shares.interface import StoredState

NO_BROKER = -1
CHANGES_AT_ONCE = 20
"""How many share partitions one request creates or deletes at the same time."""


class ShareStateRouter:
    """The stored state of all share partitions of the cluster."""

    def __init__(
        self,
        node_id: int,
        here: ShareCoordinator,
        *,
        connect: Callable[[int], Awaitable[PeerConnection]],
        coordinator_of: Callable[[ShareKey], int],
        ensure: Callable[[], Awaitable[None]],
    ) -> None:
        self._node_id = node_id
        self._here = here
        self._connect = connect
        self._coordinator_of = coordinator_of
        self._ensure = ensure
        self._connections: dict[int, PeerConnection] = {}
        self._connecting: defaultdict[int, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def initialize(self, key: ShareKey, start_offset: int) -> None:
        """Create the state, or replace it."""
        await self._ensure()
        node = self._node(key)
        if node == self._node_id:
            await self._here.initialize(key, start_offset)
        else:
            await self._ask(node, INITIALIZE, key, state_epoch=0, start_offset=start_offset)

    async def read(self, key: ShareKey, leader_epoch: int) -> StoredState:
        """Read the state for the leader of the partition."""
        node = self._node(key)
        if node == self._node_id:
            return await self._here.read(key, leader_epoch)
        found = await self._ask(node, READ, key, leader_epoch=leader_epoch)
        rows = [(b.first_offset, b.last_offset, b.delivery_state, b.delivery_count) for b in found.state_batches]
        return StoredState(found.state_epoch, leader_epoch, found.start_offset, readable_batches(rows))

    async def summary(self, key: ShareKey) -> StoredState:
        """Read the state without its batches."""
        node = self._node(key)
        if node == self._node_id:
            return await self._here.summary(key)
        found = await self._ask(node, SUMMARY, key, leader_epoch=-1)
        return StoredState(
            found.state_epoch, found.leader_epoch, found.start_offset, finished=found.delivery_complete_count
        )

    async def write(self, key: ShareKey, change: StateWrite) -> None:
        """Store a change; durable when this returns."""
        node = self._node(key)
        if node == self._node_id:
            await self._here.write(key, change)
            return
        batches = [
            {
                "first_offset": batch.first,
                "last_offset": batch.last,
                "delivery_state": batch.state,
                "delivery_count": batch.deliveries,
            }
            for batch in change.batches
        ]
        fields = {
            "state_epoch": change.state_epoch,
            "leader_epoch": change.leader_epoch,
            "start_offset": change.start_offset,
            "delivery_complete_count": -1,
            "state_batches": batches,
        }
        await self._ask(node, WRITE, key, **fields)

    async def delete(self, key: ShareKey) -> None:
        """Delete the state."""
        node = self._node(key)
        if node == self._node_id:
            await self._here.delete(key)
        else:
            await self._ask(node, DELETE, key)

    async def create(self, group_id: str, partitions: Collection[tuple[UUID, int]]) -> frozenset[tuple[UUID, int]]:
        """Create the state of new partitions of a group; returns those that have one now."""
        done = await self._each(partitions, lambda place: self.initialize(ShareKey(group_id, *place), NO_START))
        return frozenset(place for place, error in done.items() if error is None)

    async def remove(self, group_id: str, partitions: Collection[tuple[UUID, int]]) -> None:
        """Delete the state of partitions of a group. Raises the first error, after all were tried."""
        done = await self._each(partitions, lambda place: self.delete(ShareKey(group_id, *place)))
        for error in done.values():
            if error is not None:
                raise error

    async def _each(
        self, partitions: Collection[tuple[UUID, int]], change: Callable[[tuple[UUID, int]], Awaitable[None]]
    ) -> dict[tuple[UUID, int], TidemillError | None]:
        permits = asyncio.Semaphore(CHANGES_AT_ONCE)

        async def one(place: tuple[UUID, int]) -> TidemillError | None:
            async with permits:
                try:
                    await change(place)
                except TidemillError as error:
                    return error
                return None

        places = sorted(partitions)
        return dict(zip(places, await asyncio.gather(*map(one, places)), strict=True))

    def close(self) -> None:
        """Close the connections to the other brokers."""
        for connection in self._connections.values():
            connection.close()

    def _node(self, key: ShareKey) -> int:
        node = self._coordinator_of(key)
        if node == NO_BROKER:
            raise CoordinatorNotAvailable("a share partition has no coordinator at the moment; try again")
        return node

    async def _ask(self, node: int, api: ClientApi, key: ShareKey, **fields: Any) -> Any:
        request = share_state_request(api, key.group_id, key.topic_id, key.partition, **fields)
        try:
            connection = await self._connection(node)
            return share_state_result(await connection.call(request))
        except ClientError as error:
            raise CoordinatorNotAvailable(f"broker {node} did not answer about share state: {error}") from None

    async def _connection(self, node_id: int) -> PeerConnection:
        async with self._connecting[node_id]:
            known = self._connections.get(node_id)
            if known is None or known.closed:
                known = self._connections[node_id] = await self._connect(node_id)
        return known
