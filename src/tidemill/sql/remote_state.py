"""What other brokers tell of themselves: their partitions and groups, over HTTP, and how old a record of theirs is.

Each broker tells only its own (`GET /api/tables/NAME`, an Arrow stream), so that two that ask each other do not wait
for each other.
"""

import asyncio
from collections.abc import Mapping, Sequence

import pyarrow as pa

from tidemill.client.http import fetch
from tidemill.client.kafka import KafkaClient
from tidemill.model.errors import CorruptMessage, TidemillError, UnsupportedCompressionType
from tidemill.model.topics import TopicPartition
from tidemill.records.header import Buffer, iter_headers
from tidemill.records.read import read_records
from tidemill.sql.core.errors import SqlRefused
from tidemill.sql.interface import BrokerState

ANSWER_S = 10.0
PEEKED_BYTES = 1


class RemoteState:
    """The other brokers of the cluster."""

    def __init__(self, broker: BrokerState) -> None:
        self._broker = broker

    async def tables(self, name: str) -> list[pa.Table]:
        """A table of each of them; SqlRefused when one does not answer, for the rest alone would be wrong."""
        others = [each for each in self._broker.image.brokers.values() if each.node_id != self._broker.node_id]
        return list(await asyncio.gather(*(self._table(each.node_id, each.http, name) for each in others)))

    async def ages_s(
        self, places: Mapping[TopicPartition, Sequence[int]], now_ms: int
    ) -> dict[tuple[TopicPartition, int], float]:
        """How old the records at these offsets of partitions that others lead are."""
        return await asyncio.to_thread(self._ages_s, places, now_ms) if places else {}

    async def _table(self, node_id: int, http: tuple[str, int] | None, name: str) -> pa.Table:
        if http is None:
            raise SqlRefused(f"{name} of broker {node_id} cannot be told: it has no HTTP door (--http)")
        try:
            found = await asyncio.to_thread(fetch, f"http://{http[0]}:{http[1]}/api/tables/{name}", timeout_s=ANSWER_S)
        except OSError as error:
            raise SqlRefused(f"{name} of broker {node_id} cannot be told: {error}; ask again") from None
        return pa.ipc.open_stream(found).read_all()

    def _ages_s(
        self, places: Mapping[TopicPartition, Sequence[int]], now_ms: int
    ) -> dict[tuple[TopicPartition, int], float]:
        bootstrap = ",".join(f"{each.host}:{each.port}" for each in self._broker.brokers())
        found = {}
        with KafkaClient({"bootstrap.servers": bootstrap}) as client:
            for place, offsets in places.items():
                for offset in offsets:
                    try:
                        records = client.fetch(place, offset, max_bytes=PEEKED_BYTES).records
                    except TidemillError:
                        continue
                    found[place, offset] = age_s([records], offset, now_ms)
        return found


def age_s(pieces: Sequence[Buffer], offset: int, now_ms: int) -> float:
    """How old the first record is from `offset` on; 0 when there is none."""
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
