"""The state of other brokers: their partitions and groups over HTTP, and the age of their records.

Each broker returns only its own rows (`GET /api/tables/NAME`, an Arrow stream). So two brokers that query each other do
not wait for each other.
"""

import asyncio
from collections.abc import Mapping, Sequence

import pyarrow as pa

from tidemill.client.kafka import KafkaClient
from tidemill.client.kafka.options import ClientOptions
from tidemill.model.errors import CorruptMessage, TidemillError, UnsupportedCompressionType
from tidemill.model.topics import TopicPartition
from tidemill.records.header import Buffer, iter_headers
from tidemill.records.read import read_records
from tidemill.security.client_rights import ClientRights
from tidemill.sql.core.errors import SqlRefused
from tidemill.sql.interface import BrokerState
from tidemill.sql.peer_access import PeerAccess

PEEKED_BYTES = 1


class RemoteState:
    """The other brokers of the cluster."""

    def __init__(self, broker: BrokerState, access: PeerAccess) -> None:
        self._broker = broker
        self._access = access

    async def tables(self, name: str, rights: ClientRights) -> list[pa.Table]:
        """Return this table of each other broker. Raises SqlRefused when one does not answer: a part would be wrong."""
        others = [each for each in self._broker.view.image.brokers.values() if each.node_id != self._broker.node_id]
        return list(await asyncio.gather(*(self._table(each.node_id, each.http, name, rights) for each in others)))

    async def ages_s(
        self, places: Mapping[TopicPartition, Sequence[int]], now_ms: int
    ) -> dict[tuple[TopicPartition, int], float]:
        """Return the ages of the records at these offsets, in partitions that other brokers lead."""
        return await asyncio.to_thread(self._ages_s, places, now_ms) if places else {}

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

    def _ages_s(
        self, places: Mapping[TopicPartition, Sequence[int]], now_ms: int
    ) -> dict[tuple[TopicPartition, int], float]:
        found = {}
        with KafkaClient(self.kafka()) as client:
            for place, offsets in places.items():
                for offset in offsets:
                    try:
                        records = client.fetch(place, offset, max_bytes=PEEKED_BYTES).records
                    except TidemillError:
                        continue
                    found[place, offset] = age_s([records], offset, now_ms)
        return found


def age_s(pieces: Sequence[Buffer], offset: int, now_ms: int) -> float:
    """Return the age of the first record from `offset` on; 0 when there is none."""
    for piece in pieces:
        for position, header in iter_headers(piece):
            batch = memoryview(piece)[position : position + header.size]
            if header.control or header.next_offset <= offset:
                continue
            try:
                time_ms = next((one.timestamp for one in read_records(batch) if one.offset >= offset), now_ms)
            except (CorruptMessage, UnsupportedCompressionType):
                time_ms = header.max_timestamp
            return max(0, now_ms - time_ms) / 1000
    return 0.0
