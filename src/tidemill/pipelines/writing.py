"""One task of a sink: Arrow record batches into topics, in a transaction that the driver ends.

Exactly once works like this. Task i of a query writes under the transactional id `tidemill-<query>-<i>`. Taking that id
fences and aborts whatever an earlier attempt of the same task left open. The task does not commit: it hands its
producer id and epoch to the driver, which commits all tasks when the last one is done. With each transaction the driver
commits a mark, the number of the micro-batch, as the metadata of an offset of the group of the same name. Records
and mark become visible together or not at all.

When the driver dies between two commits, Spark runs the micro-batch again with the same rows. A task that finds its
mark has been committed and writes nothing; the others write again. This asks that a micro-batch that runs again has the
same rows in the same task, which holds for every deterministic query; if the number of tasks has changed, the query
stops with one line (`core.sink.check_layout`) and nothing is lost or doubled.

Transactions cannot span producers in Kafka, so for a moment during the commit some tasks of a micro-batch are visible
and others are not yet. Nothing of an aborted micro-batch ever is.
"""

import random
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidemill.client.raw import GroupOffset, ProducerIdentity, RawClient
from tidemill.client.raw.kernels import chosen_kernels
from tidemill.model.errors import TidemillError
from tidemill.model.topics import TopicPartition
from tidemill.pipelines.core.errors import PipelineError, WrongOption
from tidemill.pipelines.core.sink import Mark, SinkOptions, check_layout, read_mark
from tidemill.records.arrow import Encoded, Encoder, Writer, rows_by_partition
from tidemill.records.header import SEQUENCE_MAX


@dataclass(frozen=True, slots=True)
class Written:
    """What a task tells the driver; without a producer it wrote nothing, or nothing that could be undone."""

    name: str
    producer: ProducerIdentity | None = None
    topic: str = ""
    earlier: Mark | None = None


class TaskWriter:
    """Writes the rows of one task. `name` is its transactional id; `batch` is None outside of streaming queries."""

    def __init__(self, client: RawClient, options: SinkOptions, name: str, batch: int | None) -> None:
        self._client = client
        self._options = options
        self._name = name
        self._batch = batch
        self._producer: ProducerIdentity | None = None
        self._sequences: dict[TopicPartition, int] = {}
        self._counts: dict[str, int] = {}
        self._twin = chosen_kernels()

    def write(self, batches: Iterable[pa.RecordBatch]) -> Written:
        """Write all; what was begun is aborted when anything fails."""
        filled = (batch for batch in batches if batch.num_rows)
        first = next(filled, None)
        if first is None:
            return Written(self._name)
        try:
            earlier = self._begin()
            if earlier is not None and self._batch is not None and earlier.batch >= self._batch:
                for _ in filled:
                    pass  # Spark wants its rows taken
                return Written(self._name, earlier=earlier)
            self._write_rows(first)
            for batch in filled:
                self._write_rows(batch)
        except BaseException:
            if self._options.transactional:
                abort(self._client, [Written(self._name, self._producer)])
            raise
        return self._written()

    def _written(self) -> Written:
        if not self._options.transactional:
            return Written(self._name)
        return Written(self._name, self._producer, min(self._sequences).topic)

    def _begin(self) -> Mark | None:
        """Become the only writer under this name, and only then look what has been written under it."""
        if not self._options.transactional:
            self._producer = self._client.init_producer()
            return None
        self._producer = self._client.init_producer(self._name, timeout_ms=self._options.timeout_ms)
        if self._batch is None:
            return None
        committed = self._client.group_offsets(self._name).values()
        return max((mark for entry in committed if (mark := read_mark(entry.metadata))), default=None)

    def _write_rows(self, rows: pa.RecordBatch) -> None:
        for topic, part in _by_topic(rows, self._options.topic):
            encoder = Encoder(part, now_ms=time.time_ns() // 1_000_000, twin=self._twin)
            chosen = self._partitions(topic, part, encoder)
            queues = [self._batches(TopicPartition(topic, index), encoder, which) for index, which in chosen.items()]
            for round_ in zip_longest(*queues):
                self._send(dict(filter(None, round_)))

    def _partitions(self, topic: str, rows: pa.RecordBatch, encoder: Encoder) -> dict[int, npt.NDArray[np.int64]]:
        count = self._count(topic)
        unkeyed = random.randrange(count)  # noqa: S311 - it spreads load, it hides nothing
        chosen = encoder.partitions(count, unkeyed, self._options.partitioner)
        if "partition" in rows.schema.names:
            asked = rows.column("partition")
            given = pc.fill_null(asked, -1).to_numpy(zero_copy_only=False).astype(np.int64)
            known = asked.is_valid().to_numpy(zero_copy_only=False)
            if np.any(known & ((given < 0) | (given >= count))):
                wrong = int(given[known & ((given < 0) | (given >= count))][0])
                raise WrongOption(f"topic {topic} has no partition {wrong}; it has 0 to {count - 1}")
            chosen = np.where(known, given, chosen)
        return rows_by_partition(chosen)

    def _count(self, topic: str) -> int:
        if topic not in self._counts:
            self._counts[topic] = len(self._client.metadata([topic], create=True)[topic].leaders)
        return self._counts[topic]

    def _batches(
        self, part: TopicPartition, encoder: Encoder, rows: npt.NDArray[np.int64]
    ) -> Iterator[tuple[TopicPartition, Encoded]]:
        producer = self._identity()
        if part not in self._sequences:
            if self._options.transactional:
                self._client.add_partitions(producer, [part])
            self._sequences[part] = 0
        writer = Writer(
            producer.producer_id, producer.producer_epoch, self._sequences[part], self._options.transactional
        )
        for encoded in encoder.batches(
            rows, codec=self._options.codec, batch_bytes=self._options.batch_bytes, writer=writer
        ):
            self._sequences[part] = (self._sequences[part] + encoded.count) & SEQUENCE_MAX
            yield part, encoded

    def _send(self, batches: Mapping[TopicPartition, Encoded]) -> None:
        self._client.produce_all(
            {part: encoded.batch for part, encoded in batches.items()},
            transactional_id=self._identity().transactional_id,
        )

    def _identity(self) -> ProducerIdentity:
        if self._producer is None:
            raise PipelineError("the task has not begun")
        return self._producer


def commit(client: RawClient, tasks: Iterable[Written], batch: int | None) -> None:
    """Make visible what the tasks wrote, each with the mark of its micro-batch."""
    told = list(tasks)
    for task in told:
        if task.earlier is not None and batch is not None:
            check_layout(batch, len(told), task.earlier)
    for task in told:
        if task.producer is None:
            continue
        if batch is not None:
            mark = GroupOffset(0, metadata=str(Mark(batch, len(told))))
            client.commit_offsets_in(task.producer, task.name, {TopicPartition(task.topic, 0): mark})
        client.end_transaction(task.producer, commit=True)


def abort(client: RawClient, tasks: Iterable[Written]) -> None:
    """Undo what the tasks wrote; what cannot be told now ends with its timeout, or when the task runs again."""
    for task in tasks:
        if task.producer is not None:
            try:
                client.end_transaction(task.producer, commit=False)
            except TidemillError:
                continue


def _by_topic(rows: pa.RecordBatch, topic: str | None) -> Iterator[tuple[str, pa.RecordBatch]]:
    if topic is not None:
        yield topic, rows
        return
    column = rows.column("topic")
    if column.null_count:
        raise WrongOption("a row has no topic: fill the column topic or give the option topic")
    for name in pc.unique(column).to_pylist():
        yield name, rows.filter(pc.equal(column, name))
