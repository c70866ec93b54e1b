"""Asks every other broker for an answer again and again: the round trip, and which peers are missing.

Each peer has one connection, which is opened again after a failure. The request is ApiVersions, the cheapest one.
`cluster/core/peer_reach.py` decides from the answers.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from time import perf_counter

from tidemill.client.kafka.apis import API_VERSIONS
from tidemill.client.kafka.peer_connection import PeerConnection
from tidemill.client.kafka.protocol import plain
from tidemill.cluster.core.broker_load import RoundTrips
from tidemill.cluster.core.peer_reach import PeerReach
from tidemill.model.errors import TidemillError

PROBE_S = 2.0
PROBE_TIMEOUT_S = 3.0


class PeerWatch:
    """The connections of this broker to the others."""

    def __init__(
        self,
        connect: Callable[[int], Awaitable[PeerConnection]],
        others: Callable[[], Collection[int]],
        is_member: Callable[[], bool],
        steady_ms: Callable[[], int],
        ttl_ms: int,
    ) -> None:
        self.round_trips = RoundTrips()
        self._connect = connect
        self._others = others
        self._is_member = is_member
        self._steady_ms = steady_ms
        self._reach = PeerReach(ttl_ms)
        self._connections: dict[int, PeerConnection] = {}

    def missing(self) -> frozenset[int]:
        """The peers that are registered and do not answer."""
        return self._reach.missing()

    async def run(self) -> None:
        """Ask all peers repeatedly until cancelled."""
        try:
            while True:
                await self.probe()
                await asyncio.sleep(PROBE_S)
        finally:
            self._keep(())

    async def probe(self) -> None:
        """Ask every peer once."""
        others = self._others()
        self._keep(others)
        self._reach.keep(others, self._steady_ms())
        self.round_trips.keep(others)
        if not self._is_member():
            self._reach.start_over(self._steady_ms())
            return
        await asyncio.gather(*map(self._ask, others))

    def _keep(self, nodes: Collection[int]) -> None:
        for node_id in self._connections.keys() - set(nodes):
            self._connections.pop(node_id).close()

    async def _ask(self, node_id: int) -> None:
        try:
            async with asyncio.timeout(PROBE_TIMEOUT_S):
                connection = self._connections.get(node_id)
                if connection is None or connection.closed:
                    connection = self._connections[node_id] = await self._connect(node_id)
                began_s = perf_counter()
                await connection.call(plain(API_VERSIONS, {}))
        except (TidemillError, OSError):  # a timeout is an OSError
            if node_id in self._connections:
                self._connections.pop(node_id).close()
            self._reach.failed(node_id, self._steady_ms())
        else:
            self.round_trips.add(node_id, 1_000 * (perf_counter() - began_s))
            self._reach.answered(node_id, self._steady_ms())
