"""The writers, batch and streaming: see `tidemill.pipelines.writing` for how exactly once works."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import uuid4

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from tidemill.client.raw import RawClient
from tidemill.pipelines.core.errors import PipelineError
from tidemill.pipelines.core.sink import SinkOptions

if TYPE_CHECKING:
    import pyarrow as pa

    from tidemill.pipelines.writing import Written

QUERY_ID = "sql.streaming.queryId"
"""Spark keeps it in the checkpoint: it is the same after every restart, and no other query has it."""
BATCH_ID = "streaming.sql.batchId"


@dataclass(frozen=True)
class TaskDone(WriterCommitMessage):
    """What a task tells the driver."""

    written: "Written"


class BatchWriter(DataSourceArrowWriter):
    """Writes a DataFrame: all of it becomes visible when the last task is done, or nothing."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._run = uuid4().hex

    def write(self, iterator: Iterator["pa.RecordBatch"]) -> TaskDone:
        """Write the rows of a task."""
        return _write(self._options, iterator, f"tidemill-{self._run}-{_context().partitionId()}", None)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """All tasks are done."""
        _commit(self._options, messages, None)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """A task failed for good."""
        _abort(self._options, messages)


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes micro-batches, each exactly once."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator["pa.RecordBatch"]) -> TaskDone:
        """Write the rows of a task."""
        context = _context()
        query, batch = context.getLocalProperty(QUERY_ID), context.getLocalProperty(BATCH_ID)
        if query is None or batch is None:
            raise PipelineError("Spark does not say which query and micro-batch this task belongs to")
        return _write(self._options, iterator, f"tidemill-{query}-{context.partitionId()}", int(batch))

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """All tasks of a micro-batch are done."""
        _commit(self._options, messages, batchId)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803, ARG002 - Spark's name
        """A task failed for good; the micro-batch will run again under the same number."""
        _abort(self._options, messages)


def _context() -> TaskContext:
    context = TaskContext.get()
    if context is None:
        raise PipelineError("rows are written by Spark's tasks only")
    return context


def _write(options: SinkOptions, rows: Iterator["pa.RecordBatch"], name: str, batch: int | None) -> TaskDone:
    from tidemill.pipelines.writing import TaskWriter  # noqa: PLC0415 - kernels are loaded where they work

    with RawClient(options.client) as client:
        return TaskDone(TaskWriter(client, options, name, batch).write(rows))


def _commit(options: SinkOptions, messages: Sequence[WriterCommitMessage | None], batch: int | None) -> None:
    from tidemill.pipelines.writing import commit  # noqa: PLC0415 - as above

    with RawClient(options.client) as client:
        commit(client, _told(messages), batch)


def _abort(options: SinkOptions, messages: Sequence[WriterCommitMessage | None]) -> None:
    from tidemill.pipelines.writing import abort  # noqa: PLC0415 - as above

    with RawClient(options.client) as client:
        abort(client, _told(messages))


def _told(messages: Sequence[WriterCommitMessage | None]) -> list["Written"]:
    return [message.written for message in messages if isinstance(message, TaskDone)]
