"""A lake back into a topic: the order within each partition, keys, headers and timestamps stay as they were.

Partitions keep their numbers when the target has as many as the lake; otherwise keys choose as librdkafka would.
A replay that is stopped and started again writes again what it had written: give it a topic of its own.
"""

import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidemill.client.raw import RawClient
from tidemill.client.raw.kernels import chosen_kernels
from tidemill.model.topics import TopicPartition
from tidemill.pipelines.core.errors import PipelineError
from tidemill.pipelines.core.lake import LakeFile, in_order
from tidemill.pipelines.lake.interface import Lake
from tidemill.records.arrow import Encoder, Writer, rows_by_partition
from tidemill.records.compression import Codec
from tidemill.records.header import SEQUENCE_MAX

ROWS = 10_000
SLICES_PER_SECOND = 10
"""How evenly a rate is kept."""
COLUMNS = ["key", "value", "headers", "timestamp", "offset"]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is replayed, and how fast; `rate` is in rows per second."""

    topic: str
    since_ms: int | None = None
    rate: int | None = None

    @property
    def rows(self) -> int:
        """How many are sent at a time."""
        return ROWS if self.rate is None else min(ROWS, max(1, self.rate // SLICES_PER_SECOND))


class Replay:
    """One run from a lake to a topic."""

    def __init__(self, client: RawClient, lake: Lake, wanted: Wanted) -> None:
        self._client = client
        self._lake = lake
        self._wanted = wanted
        self._files: dict[int, list[LakeFile]] = defaultdict(list)
        for file in lake.files():
            if file.partition < 0:
                raise PipelineError(f"{lake.root} has rows without offsets; only archives of topics can be replayed")
            self._files[file.partition].append(file)
        self._sequences: dict[TopicPartition, int] = defaultdict(int)
        self._twin = chosen_kernels()

    @property
    def rows(self) -> int:
        """How many rows the lake has."""
        return sum(file.rows for files in self._files.values() for file in files)

    @property
    def partitions(self) -> int:
        """How many partitions the topic had, as far as the lake knows."""
        return max(self._files, default=0) + 1

    def run(self, advance: Callable[[int], None]) -> int:
        """Write all; `advance` is told how many rows were written since the last call."""
        self._producer = self._client.init_producer()
        self._count = len(self._client.metadata([self._wanted.topic], create=True)[self._wanted.topic].leaders)
        begin, done = time.monotonic(), 0
        for partition, rows in self._rows():
            self._send(partition, rows)
            done += rows.num_rows
            advance(rows.num_rows)
            if self._wanted.rate is not None:
                time.sleep(max(0.0, begin + done / self._wanted.rate - time.monotonic()))
        return done

    def _rows(self) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Slices of each partition in turn, so that all partitions grow together."""
        running = {partition: self._partition(files) for partition, files in sorted(self._files.items())}
        while running:
            for partition in list(running):
                rows = next(running[partition], None)
                if rows is None:
                    del running[partition]
                else:
                    yield partition, rows

    def _partition(self, files: list[LakeFile]) -> Iterator[pa.RecordBatch]:
        for group in in_order(files):
            opened = [pq.ParquetFile(self._lake.root / file.path) for file in group]
            if len(opened) == 1:
                batches = opened[0].iter_batches(self._wanted.rows, columns=COLUMNS)
            else:
                rows = pa.concat_tables([file.read(COLUMNS) for file in opened]).sort_by("offset").combine_chunks()
                batches = iter(rows.to_batches(self._wanted.rows))
            for batch in batches:
                chosen = self._since(batch)
                if chosen.num_rows:
                    yield chosen.drop_columns(["offset"])

    def _since(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        if self._wanted.since_ms is None:
            return rows
        since = pa.scalar(self._wanted.since_ms * 1000, pa.int64()).cast(rows.schema.field("timestamp").type)
        return rows.filter(pc.greater_equal(rows.column("timestamp"), since))

    def _send(self, partition: int, rows: pa.RecordBatch) -> None:
        encoder = Encoder(rows, now_ms=time.time_ns() // 1_000_000, twin=self._twin)
        for index, which in self._placed(partition, encoder, rows.num_rows).items():
            part = TopicPartition(self._wanted.topic, index)
            producer, sequence = self._producer, self._sequences[part]
            writer = Writer(producer.producer_id, producer.producer_epoch, sequence, transactional=False)
            for encoded in encoder.batches(which, codec=Codec.LZ4, writer=writer):
                self._client.produce(part, encoded.batch)
                self._sequences[part] = (self._sequences[part] + encoded.count) & SEQUENCE_MAX

    def _placed(self, partition: int, encoder: Encoder, rows: int) -> dict[int, npt.NDArray[np.int64]]:
        if self._count == self.partitions:
            return {partition: np.arange(rows, dtype=np.int64)}
        unkeyed = random.randrange(self._count)  # noqa: S311 - it spreads load, it hides nothing
        return rows_by_partition(encoder.partitions(self._count, unkeyed))
