"""Writes a lake back into a topic. Keys, headers, timestamps and the order within each partition are kept.

Partitions keep their numbers when the target has as many as the lake. Otherwise keys choose, as in librdkafka.

A replay writes in transactions under a name made of the lake and the topic. It commits its position together with the
records (`core.replay`). A restarted replay aborts the open transaction, reads the position and continues there. So a
reader of committed records finds each record once, even if the replay was killed. A replay that had reached the end
adds the rows that the lake has received since.
"""

import contextlib
import hashlib
import random
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidemill.client.kafka import EARLIEST, LATEST, GroupOffset, KafkaClient, ProducerIdentity
from tidemill.client.kafka.kernels import chosen_kernels
from tidemill.model.errors import TidemillError
from tidemill.model.topics import TopicPartition
from tidemill.pipelines.errors import PipelineError
from tidemill.pipelines.lake.compaction import ordered
from tidemill.pipelines.lake.core.contents import DATE, LakeFile
from tidemill.pipelines.lake.core.replay import positions_from_texts, positions_to_texts
from tidemill.pipelines.lake.interface import Lake
from tidemill.records.arrow import BatchProducer, Encoder, Kernels
from tidemill.records.compression import Codec
from tidemill.records.header import SEQUENCE_MAX

ROWS = 10_000
ROWS_PER_TRANSACTION = 100_000
COMMIT_S = 1.0
"""How long readers of committed records wait for a slow replay at most."""
TIMEOUT_MS = 60_000
"""How long a killed replay can block readers if it is not restarted."""
SLICES_PER_SECOND = 10
"""The number of slices per second in which a rate limit is applied."""
COLUMNS = ["key", "value", "headers", "timestamp", "offset"]
NAME_CHARS = 16
_DAY = re.compile(rf"(?:^|/){DATE}=(\d{{4}}-\d\d-\d\d)/")


@dataclass(frozen=True, slots=True)
class ReplayRequest:
    """What to replay, and how fast: `rate` is in rows per second. `again` starts from the beginning in any case."""

    topic: str
    since_ms: int | None = None
    rate: int | None = None
    again: bool = False

    @property
    def rows(self) -> int:
        """How many rows are sent at a time."""
        return ROWS if self.rate is None else min(ROWS, max(1, self.rate // SLICES_PER_SECOND))


class RowSlice:
    """Rows of one partition of the lake that are sent together, and the offset after them."""

    __slots__ = ("next_offset", "partition", "rows")

    def __init__(self, partition: int, rows: pa.RecordBatch) -> None:
        self.partition = partition
        self.rows = rows
        self.next_offset: int = pc.max(rows.column("offset")).as_py() + 1


class Replay:
    """One run from a lake to a topic."""

    def __init__(self, client: KafkaClient, lake: Lake, wanted: ReplayRequest) -> None:
        self._client = client
        self._lake = lake
        self._wanted = wanted
        self._files: dict[int, list[LakeFile]] = defaultdict(list)
        for file in lake.files():
            if file.partition < 0:
                raise PipelineError(f"{lake.root} has rows without offsets; only archives of topics can be replayed")
            self._files[file.partition].append(file)
        self._kernels = chosen_kernels()
        self.older = 0
        """How many rows were skipped because they are older than requested."""

    @property
    def name(self) -> str:
        """The transactional id, and the group that stores the replay's position."""
        origin = f"{self._lake.root}\n{self._wanted.topic}"
        return f"tidemill-replay-{hashlib.sha256(origin.encode()).hexdigest()[:NAME_CHARS]}"

    @property
    def rows(self) -> int:
        """How many rows the lake has."""
        return sum(file.rows for files in self._files.values() for file in files)

    @property
    def oldest_ms(self) -> int | None:
        """No replayed record is older than this day. None when the lake has no days."""
        days = [found[1] for files in self._files.values() for file in files if (found := _DAY.search(file.path))]
        if not days:
            return None
        first_ms = int(datetime.fromisoformat(min(days)).replace(tzinfo=UTC).timestamp() * 1000)
        return max(first_ms, self._wanted.since_ms or first_ms)

    @property
    def partitions(self) -> int:
        """How many partitions the topic had, as far as the lake shows."""
        return max(self._files, default=0) + 1

    def run(self, advance: Callable[[int], None], stopped: Callable[[], bool] = lambda: False) -> int:
        """Write the remaining rows. `advance` gets the number of rows of the lake that are done since its last call."""
        topic = self._wanted.topic
        producer = self._client.init_producer(self.name, timeout_ms=TIMEOUT_MS)
        count = len(self._client.metadata([topic], create=True)[topic].leaders)
        positions = {} if self._wanted.again else self._positions()
        if not positions and not self._wanted.again:
            self._check_own_topic(count)
        writing = _Writing(self._client, producer, _Target(topic, count, self.partitions), self._kernels)
        try:
            done = self._write(writing, positions, advance, stopped)
            writing.commit(positions)
        except BaseException:
            writing.abort()
            raise
        return done

    def _check_own_topic(self, count: int) -> None:
        """Refuse to replay an archive into its own topic while that has records: each would be there twice.

        An empty topic is accepted, because a lost topic is restored this way.
        """
        topic = self._wanted.topic
        if topic != self._lake.root.absolute().name:
            return
        parts = [TopicPartition(topic, index) for index in range(count)]
        first, last = (self._client.list_offsets(dict.fromkeys(parts, at)) for at in (EARLIEST, LATEST))
        if any(first[part].offset < last[part].offset for part in parts):
            raise PipelineError(
                f"{self._lake.root} is an archive of {topic}, which still has records, so they would be duplicated; "
                "replay to another topic, or give --again to replay anyway"
            )

    def _write(
        self,
        writing: "_Writing",
        positions: dict[int, int],
        advance: Callable[[int], None],
        stopped: Callable[[], bool],
    ) -> int:
        begin, done = time.monotonic(), 0
        for each in self._slices(positions, advance):
            if stopped():
                break
            chosen = self._since(each.rows)
            self.older += each.rows.num_rows - chosen.num_rows
            writing.send(each.partition, chosen)
            positions[each.partition] = each.next_offset
            done += chosen.num_rows
            if writing.due():
                writing.commit(positions)
            advance(each.rows.num_rows)
            if self._wanted.rate is not None:
                time.sleep(max(0.0, begin + done / self._wanted.rate - time.monotonic()))
        return done

    def _positions(self) -> dict[int, int]:
        """The committed positions.

        Read them only after taking the producer id, so that no other replay can move them.
        """
        return positions_from_texts(kept.metadata for kept in self._client.group_offsets(self.name).values())

    def _slices(self, positions: dict[int, int], advance: Callable[[int], None]) -> Iterator[RowSlice]:
        """Slices of each partition in turn, so that all partitions grow together."""
        running = {
            partition: self._partition(partition, positions.get(partition, 0), advance)
            for partition in sorted(self._files)
        }
        while running:
            for partition in list(running):
                found = next(running[partition], None)
                if found is None:
                    del running[partition]
                else:
                    yield found

    def _partition(self, partition: int, start: int, advance: Callable[[int], None]) -> Iterator[RowSlice]:
        files = self._files[partition]
        left = [file for file in files if file.last >= start]
        advance(sum(file.rows for file in files) - sum(file.rows for file in left))
        for batch in ordered(self._lake, left, self._wanted.rows, COLUMNS):
            new = batch.filter(pc.greater_equal(batch.column("offset"), start))
            advance(batch.num_rows - new.num_rows)
            if new.num_rows:
                yield RowSlice(partition, new)

    def _since(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        if self._wanted.since_ms is None:
            return rows
        since = pa.scalar(self._wanted.since_ms * 1000, pa.int64()).cast(rows.schema.field("timestamp").type)
        return rows.filter(pc.greater_equal(rows.column("timestamp"), since))


@dataclass(frozen=True, slots=True)
class _Target:
    """The topic, its number of partitions, and that of the lake."""

    topic: str
    count: int
    lake_count: int


class _Writing:
    """The transactions of a replay, one after another."""

    def __init__(self, client: KafkaClient, producer: ProducerIdentity, target: _Target, kernels: Kernels) -> None:
        self._client = client
        self._producer = producer
        self._target = target
        self._kernels = kernels
        self._sequences: dict[TopicPartition, int] = defaultdict(int)
        self._joined: set[TopicPartition] = set()
        self._rows = 0
        self._began = time.monotonic()

    def send(self, partition: int, rows: pa.RecordBatch) -> None:
        """Write rows of a partition of the lake."""
        if not rows.num_rows:
            return
        encoder = Encoder(rows.drop_columns(["offset"]), now_ms=time.time_ns() // 1_000_000, kernels=self._kernels)
        for index, which in self._placed(partition, encoder, rows.num_rows).items():
            part = TopicPartition(self._target.topic, index)
            self._join(part)
            producer = self._producer
            writer = BatchProducer(
                producer.producer_id, producer.producer_epoch, self._sequences[part], transactional=True
            )
            for encoded in encoder.batches(which, codec=Codec.LZ4, writer=writer):
                self._client.produce(part, encoded.batch, transactional_id=producer.transactional_id)
                self._sequences[part] = (self._sequences[part] + encoded.count) & SEQUENCE_MAX
        self._rows += rows.num_rows

    def due(self) -> bool:
        """Whether readers have waited long enough."""
        return self._rows >= ROWS_PER_TRANSACTION or time.monotonic() - self._began >= COMMIT_S

    def commit(self, positions: dict[int, int]) -> None:
        """Make records and positions visible together."""
        if positions and self._rows:
            texts = positions_to_texts(positions, self._target.count)
            offsets = {
                TopicPartition(self._target.topic, index): GroupOffset(0, metadata=text)
                for index, text in texts.items()
            }
            self._client.commit_offsets_in(self._producer, str(self._producer.transactional_id), offsets)
            self._client.end_transaction(self._producer, commit=True)
        self._joined.clear()
        self._rows, self._began = 0, time.monotonic()

    def abort(self) -> None:
        """Abort the open transaction.

        If the broker cannot be reached, it ends with its timeout or with the next replay.
        """
        if self._joined:
            with contextlib.suppress(TidemillError):
                self._client.end_transaction(self._producer, commit=False)

    def _join(self, part: TopicPartition) -> None:
        if part not in self._joined:
            self._client.add_partitions(self._producer, [part])
            self._joined.add(part)

    def _placed(self, partition: int, encoder: Encoder, rows: int) -> dict[int, npt.NDArray[np.int64]]:
        if self._target.count == self._target.lake_count:
            return {partition: np.arange(rows, dtype=np.int64)}
        unkeyed = random.randrange(self._target.count)  # noqa: S311 - it spreads load and is not used for security
        return encoder.dealt(encoder.partitions(self._target.count, unkeyed), self._target.count)
