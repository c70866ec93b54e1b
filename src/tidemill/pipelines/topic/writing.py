"""Writes the rows of one sink task: Arrow record batches into topics, in a transaction.

Task i of a sink uses the transactional id `<sink>-<i>`. A later attempt uses `<sink>-<i>-<attempt>`. So an attempt that
Spark has abandoned cannot take the id of the attempt whose rows count. Taking an id aborts the open transaction under
it. The task must not commit. It passes its producer id and epoch to the driver, which ends the transaction (see
`committing`).

The rows of a partition are collected in a draft until a batch is full, however small Spark's Arrow batches are. Drafts
are large when they are few and small when they are many, so memory stays bounded.
"""

import random
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidemill.client.kafka import KafkaClient, ProducerIdentity
from tidemill.client.kafka.kernels import HERE
from tidemill.model.errors import InvalidTransactionTimeout
from tidemill.model.topics import TopicPartition
from tidemill.pipelines.errors import PipelineError, WrongOption
from tidemill.pipelines.topic.committing import CommitPlan, Written, abort
from tidemill.pipelines.topic.core.options import SinkOptions
from tidemill.pipelines.topic.sending import Sender
from tidemill.records.arrow import BatchProducer, Draft, Encoder
from tidemill.records.compression import Codec
from tidemill.records.header import SEQUENCE_MAX

DRAFTS_BYTES_MAX = 64 * 1024 * 1024
"""The limit for all drafts of a task together, unless there are thousands of them."""
DRAFT_BYTES_MIN = 16 * 1024
REQUEST_BYTES = 4 * 1024 * 1024
"""Batches of several partitions are sent together up to this size, so that their leaders work at the same time."""
GATHERED_BYTES = 512 * 1024
"""Small Arrow batches are concatenated up to this size, because each costs about 0.1 ms, however few rows it has."""


@dataclass(frozen=True, slots=True)
class TaskAttempt:
    """The number of a task and of the attempt at it."""

    task: int
    attempt: int = 0

    def name(self, sink: str) -> str:
        """The transactional id of this attempt."""
        return f"{sink}-{self.task}-{self.attempt}" if self.attempt else f"{sink}-{self.task}"


def write_micro_batch(
    client: KafkaClient,
    options: SinkOptions,
    plan: CommitPlan,
    place: TaskAttempt,
    batches: Iterable[pa.RecordBatch],
    *,
    of: tuple[str, int],
) -> Written:
    """Write the rows of a task of a streaming query, unless they are in the topic already.

    `of` is (query, micro-batch).
    """
    if plan.skips(*of, place.task):
        for _ in batches:
            pass  # Spark requires a writer to consume all rows
        return Written(place.task)
    return TaskWriter(client, options, place, plan.sink).write(batches)


class TaskWriter:
    """Writes the rows of one task."""

    def __init__(self, client: KafkaClient, options: SinkOptions, place: TaskAttempt, sink: str) -> None:
        self._client = client
        self._options = options
        self._place = place
        self._sink = sink
        self._producer: ProducerIdentity | None = None
        self._sequences: dict[TopicPartition, int] = {}
        self._counts: dict[str, int] = {}
        self._drafts: dict[TopicPartition, Draft] = {}
        self._full: dict[TopicPartition, bytearray | memoryview] = {}

    def write(self, batches: Iterable[pa.RecordBatch]) -> Written:
        """Write all rows. If anything fails, the open transaction is aborted."""
        filled = gathered(batches)
        first = next(filled, None)
        if first is None:
            return Written(self._place.task)
        try:
            self._begin()
            with Sender(self._client, self._identity().transactional_id) as sender:
                for batch in chain([first], filled):
                    self._write_rows(batch, sender)
                    self._send(sender)
                for part in list(self._drafts):
                    self._close(part, self._drafts.pop(part), sender)
                self._send(sender)
                sender.drain()
        except BaseException:
            if self._options.transactional:
                abort(self._client, [Written(self._place.task, self._producer)])
            raise
        return self._written()

    def _written(self) -> Written:
        if not self._options.transactional:
            return Written(self._place.task)
        return Written(self._place.task, self._producer, min(self._sequences))

    def _begin(self) -> None:
        if self._options.transactional:
            name, timeout_ms = self._place.name(self._sink), self._options.timeout_ms
            try:
                self._producer = self._client.init_producer(name, timeout_ms=timeout_ms)
            except InvalidTransactionTimeout:
                raise WrongOption(
                    f"kafka.transaction.timeout.ms: {timeout_ms} is more than the broker's "
                    "transaction.max.timeout.ms; set a smaller value"
                ) from None
        else:
            self._producer = self._client.init_producer()

    def _write_rows(self, rows: pa.RecordBatch, sender: Sender) -> None:
        for topic, part in _by_topic(rows, self._options.topic):
            encoder = Encoder(part, now_ms=time.time_ns() // 1_000_000, kernels=HERE.of(part.num_rows))
            if topic not in self._counts:
                self._counts[topic] = sender.call(self._count, topic)
            chosen = self._partitions(topic, part, encoder)
            new = [place for index in chosen if (place := TopicPartition(topic, index)) not in self._sequences]
            if new and self._options.transactional:
                sender.call(self._client.add_partitions, self._identity(), new)
            self._sequences.update(dict.fromkeys(new, 0))
            for index, which in chosen.items():
                self._fill(TopicPartition(topic, index), encoder, which, sender)

    def _fill(self, part: TopicPartition, encoder: Encoder, rows: npt.NDArray[np.int64], sender: Sender) -> None:
        halves = 1 if self._options.compression.codec is Codec.NONE else 2  # an uncompressed and a compressed buffer
        share = max(DRAFT_BYTES_MIN, DRAFTS_BYTES_MAX // (halves * sum(self._counts.values())))
        size = min(self._options.batch_bytes, share)
        begun = self._drafts.pop(part, None)
        for draft in encoder.fill(rows, begun, batch_bytes=size, compression=self._options.compression):
            if part in self._drafts:
                self._close(part, self._drafts[part], sender)
            self._drafts[part] = draft

    def _close(self, part: TopicPartition, draft: Draft, sender: Sender) -> None:
        """Seal a draft as a batch. A request takes batches of several partitions, but only one of each."""
        if part in self._full or sum(map(len, self._full.values())) >= REQUEST_BYTES:
            self._send(sender)
        producer = self._identity()
        writer = BatchProducer(
            producer.producer_id, producer.producer_epoch, self._sequences[part], self._options.transactional
        )
        self._full[part] = draft.sealed(writer).batch
        self._sequences[part] = (self._sequences[part] + draft.count) & SEQUENCE_MAX

    def _send(self, sender: Sender) -> None:
        if self._full:
            sender.produce(self._full)
            self._full = {}

    def _partitions(self, topic: str, rows: pa.RecordBatch, encoder: Encoder) -> dict[int, npt.NDArray[np.int64]]:
        count = self._counts[topic]
        unkeyed = random.randrange(count)  # noqa: S311 - it spreads load and is not used for security
        chosen = encoder.partitions(count, unkeyed, self._options.partitioner)
        if "partition" in rows.schema.names:
            asked = rows.column("partition")
            given = pc.fill_null(asked, -1).to_numpy(zero_copy_only=False).astype(np.int64)
            known = asked.is_valid().to_numpy(zero_copy_only=False)
            if np.any(known & ((given < 0) | (given >= count))):
                wrong = int(given[known & ((given < 0) | (given >= count))][0])
                has = f"topic {topic} has no partition {wrong}; it has 0 to {count - 1}"
                raise WrongOption(f"{has}: leave out the column partition to choose by key")
            chosen = np.where(known, given, chosen)
        return encoder.dealt(chosen, count)

    def _count(self, topic: str) -> int:
        return len(self._client.metadata([topic], create=True)[topic].leaders)

    def _identity(self) -> ProducerIdentity:
        if self._producer is None:
            raise PipelineError("the task has no producer id because it has not begun")
        return self._producer


def gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in larger batches. Empty batches are left out."""
    waiting: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if batch.num_rows:
            waiting.append(batch)
            size += batch.nbytes
        if size >= GATHERED_BYTES:
            yield pa.concat_batches(waiting) if len(waiting) > 1 else waiting[0]
            waiting, size = [], 0
    if waiting:
        yield pa.concat_batches(waiting) if len(waiting) > 1 else waiting[0]


def _by_topic(rows: pa.RecordBatch, topic: str | None) -> Iterator[tuple[str, pa.RecordBatch]]:
    if topic is not None:
        yield topic, rows
        return
    column = rows.column("topic")
    if column.null_count:
        raise WrongOption("a row has no topic; fill the column topic or set the option topic")
    for name in pc.unique(column).to_pylist():
        yield name, rows.filter(pc.equal(column, name))
