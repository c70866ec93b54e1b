"""The state of other brokers: their partitions and groups over HTTP, and the age of their records.

Each broker returns only its own rows (`GET /api/tables/NAME`, an Arrow stream). So two brokers that query each other do
not wait for each other.
"""

import asyncio
from collections.abc import Collection, Iterable
from typing import NamedTuple

import pyarrow as pa

from tidemill.client.kafka import EARLIEST, KafkaClient
from tidemill.client.kafka.options import ClientOptions
from tidemill.model.errors import TidemillError
from tidemill.model.topics import TopicPartition
from tidemill.records.unread import UnreadPosition, unread_in
from tidemill.security.client_rights import ClientRights
from tidemill.sql.core.errors import SqlRefused
from tidemill.sql.interface import BrokerState
from tidemill.sql.peer_access import PeerAccess

PEEKED_BYTES = 1
BATCHES_MAX = 8
"""The most batches of a partition of another broker that one query reads to find an unread record."""
CommittedPlace = tuple[TopicPartition, int]


class UnreadAt(NamedTuple):
    """The first unread record, and the end of the records that a read_committed consumer can read."""

    position: UnreadPosition
    end_offset: int


class RemoteState:
    """The other brokers of the cluster."""

    def __init__(self, broker: BrokerState, access: PeerAccess) -> None:
        self._broker = broker
        self._access = access

    async def tables(self, name: str, rights: ClientRights) -> list[pa.Table]:
        """Return this table of each other broker. Raises SqlRefused when one does not answer: a part would be wrong."""
        others = [each for each in self._broker.view.image.brokers.values() if each.node_id != self._broker.node_id]
        return list(await asyncio.gather(*(self._table(each.node_id, each.http, name, rights) for each in others)))

    async def unread(self, places: Collection[CommittedPlace]) -> dict[CommittedPlace, UnreadAt]:
        """Return what is unread from these offsets on, in partitions that other brokers lead."""
        return await asyncio.to_thread(self._unread, list(places)) if places else {}

    def kafka(self) -> ClientOptions:
        """Return the options for partitions of other brokers: any broker knows them."""
        return self._access.kafka(",".join(f"{each.host}:{each.port}" for each in self._broker.view.brokers()))

    async def _table(self, node_id: int, http: tuple[str, int] | None, name: str, rights: ClientRights) -> pa.Table:
        if http is None:
            raise SqlRefused(
                f"table {name} of broker {node_id} cannot be read: it has no HTTP listener; start it with --http"
            )
        try:
            found = await asyncio.to_thread(self._access.table, node_id, http, name, rights)
        except OSError as error:
            raise SqlRefused(f"table {name} of broker {node_id} cannot be read: {error}; try again") from None
        return pa.ipc.open_stream(found).read_all()

    def _unread(self, places: Iterable[CommittedPlace]) -> dict[CommittedPlace, UnreadAt]:
        found = {}
        with KafkaClient(self.kafka()) as client:
            for each in places:
                try:
                    found[each] = _next_unread(client, *each)
                except TidemillError:
                    continue
        return found


def _next_unread(client: KafkaClient, place: TopicPartition, offset: int) -> UnreadAt:
    first = client.list_offsets({place: EARLIEST})[place].offset
    position, end_offset = UnreadPosition(max(offset, first)), 0
    for _ in range(BATCHES_MAX):
        found = client.fetch(place, position.offset, max_bytes=PEEKED_BYTES, committed=True, max_wait_ms=0)
        end_offset = found.last_stable_offset
        if not found.records:
            break
        position = unread_in([found.records], found.aborted, position.offset)
        if position.timestamp_ms is not None:
            break
    return UnreadAt(position, end_offset)
