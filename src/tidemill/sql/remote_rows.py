"""Records of partitions that other brokers lead: read with a Kafka client, one fetch at a time."""

from collections.abc import Iterator, Sequence

import pyarrow as pa

from tidemill.client.kafka import EARLIEST, LATEST, KafkaClient
from tidemill.client.kafka.options import ClientOptions
from tidemill.model.topics import TopicPartition
from tidemill.records.arrow import Decoder
from tidemill.sql.rows import BLOCK_ROWS, Range, StreamedRows, decoded_names, kernels_for, on_unreadable, schema_of


class RemoteRows:
    """The committed records of some partitions; only the named columns are built."""

    def __init__(
        self, options: ClientOptions, partitions: Sequence[TopicPartition], columns: Sequence[str], wanted: Range
    ) -> None:
        self._options = options
        self._partitions = partitions
        self._columns = list(columns)
        self._wanted = wanted
        self.rows = StreamedRows(schema_of(self._columns), self._all)

    def _all(self) -> Iterator[pa.RecordBatch]:
        with KafkaClient(self._options) as client:
            since = self._wanted.since_ms if self._wanted.since_ms > 0 else EARLIEST
            firsts = client.list_offsets(dict.fromkeys(self._partitions, since))
            ends = client.list_offsets(dict.fromkeys(self._partitions, LATEST), committed=True)
            for each in self._partitions:
                if firsts[each].offset >= 0:
                    first = max(firsts[each].offset, self._wanted.first_offset)
                    yield from self._of(client, each, first, self._wanted.end(ends[each].offset))

    def _of(self, client: KafkaClient, partition: TopicPartition, first: int, end: int) -> Iterator[pa.RecordBatch]:
        if first >= end:
            return
        names = decoded_names(self._columns)
        decoder = Decoder(
            *partition,
            columns=names,
            rows=BLOCK_ROWS,
            verify=False,
            kernels=kernels_for(end - first),
            on_unreadable=on_unreadable(self._wanted),
        )
        for piece in client.read_range(partition, first, end, committed=True):
            for batch in decoder.decode(piece.records, first, end, piece.aborted):
                yield batch.rename_columns(self._columns)
