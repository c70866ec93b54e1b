"""Reads the rows of one query task: ranges of offsets as Arrow record batches, in order.

Retention or a deletion may remove records before the task reads them. The task then raises DataLost, or skips them when
the query has failOnDataLoss=false.
"""

import logging
from collections.abc import Iterable, Iterator

import pyarrow as pa

from tidemill.client.kafka import EARLIEST, KafkaClient
from tidemill.client.kafka.kernels import HERE
from tidemill.model.errors import OffsetOutOfRange, UnknownTopicOrPartition, UnreadableBatch
from tidemill.pipelines.errors import GO_ON, SKIP_UNREADABLE, DataLost
from tidemill.pipelines.source.core.offsets import OffsetRange
from tidemill.pipelines.source.core.options import SourceOptions
from tidemill.records.arrow import Decoder, DecompressedRecords

GROUP_BYTES = 1024 * 1024
"""Bytes after which an Arrow batch is passed to Spark. Its data is then still in the processor's cache through
decompression, decoding and sending. With records of 1 KB this saves a fifth of the processor time, compared with 10,000
rows at a time."""
log = logging.getLogger("tidemill.spark")
_IDLE: list[DecompressedRecords] = []
"""Buffers of finished tasks, for the next task of this process. There are as many as tasks ran at the same time."""


def read_task(
    options: SourceOptions, task: Iterable[OffsetRange], columns: tuple[str, ...]
) -> Iterator[pa.RecordBatch]:
    """The rows of a task, read over a connection of its own."""
    buffer = _IDLE.pop() if _IDLE else DecompressedRecords()
    with KafkaClient(options.client) as client:
        for wanted in task:
            yield from _read(client, options, wanted, columns, buffer)
    _IDLE.append(buffer)


def _read(
    client: KafkaClient,
    options: SourceOptions,
    wanted: OffsetRange,
    columns: tuple[str, ...],
    buffer: DecompressedRecords,
) -> Iterator[pa.RecordBatch]:
    part = wanted.partition
    kernels = HERE.of(wanted.size)
    decoder = Decoder(
        part.topic,
        part.partition,
        columns=columns,
        rows=options.rows,
        group_bytes=GROUP_BYTES,
        kernels=kernels,
        room=buffer,
        on_unreadable=_stop if options.fail_on_unreadable else _skip,
    )
    at = wanted.start
    while at < wanted.end:
        try:
            for piece in client.read_range(part, at, wanted.end, committed=options.committed):
                yield from decoder.decode(piece.records, at, wanted.end, piece.aborted)
                at = piece.next_offset
        except (OffsetOutOfRange, UnknownTopicOrPartition) as error:
            at = _after_the_gap(client, options, wanted, at, error)
        else:
            return


def _stop(error: UnreadableBatch) -> None:
    raise UnreadableBatch(f"{error}; {SKIP_UNREADABLE}") from None


def _skip(error: UnreadableBatch) -> None:
    log.warning("batch_skipped: %s", error)


def _after_the_gap(client: KafkaClient, options: SourceOptions, wanted: OffsetRange, at: int, error: Exception) -> int:
    """The first offset that can be read now; the end of the range when nothing is left to read."""
    part = wanted.partition
    try:
        first = client.list_offsets({part: EARLIEST})[part].offset
    except UnknownTopicOrPartition:
        first = -1
    if options.fail_on_data_loss:
        if first > at:
            lost = f"offsets {at} to {min(first, wanted.end) - 1} of {part} were deleted: the log begins at {first}"
        else:
            lost = f"offsets {at} to {wanted.end - 1} of {part} were deleted: {error}"
        raise DataLost(f"{lost}; {GO_ON}") from None
    return first if first > at else wanted.end
