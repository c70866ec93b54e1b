"""The writers, batch and streaming: see `tidemill.pipelines.committing` for how exactly once works.

Spark makes a stream writer anew for every micro-batch, on the driver's machine, and sends it to the tasks: that is
where the micro-batch begins. For the commit it makes another one, from a data source that has travelled (see `format`),
and hands it what the tasks told, the plan among it.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import uuid4

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from tidemill.client.kafka import KafkaClient
from tidemill.model.errors import TidemillError
from tidemill.pipelines.committing import CommitPlan, Written, abandon, abort_all, begin, commit, commit_all
from tidemill.pipelines.core.errors import PipelineError
from tidemill.pipelines.core.sink import SinkOptions
from tidemill.pipelines.spark.checkpoint import sink_of
from tidemill.pipelines.spark.worker import settled

if TYPE_CHECKING:
    import pyarrow as pa

QUERY_ID = "sql.streaming.queryId"
"""Spark keeps it in the checkpoint: it is the same after every restart, and no other query has it."""
BATCH_ID = "streaming.sql.batchId"
_BEGUN: dict[str, CommitPlan] = {}
"""The last plan of each sink that was begun in this process; Spark lets the same worker begin all micro-batches."""


@dataclass(frozen=True)
class TaskDone(WriterCommitMessage):
    """What a task tells the driver."""

    written: Written
    plan: CommitPlan | None = None
    query: str = ""


class BatchWriter(DataSourceArrowWriter):
    """Writes a DataFrame: all of it becomes visible when the last task is done, or nothing."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._sink = f"tidemill-{uuid4().hex}"

    def write(self, iterator: Iterator["pa.RecordBatch"]) -> TaskDone:
        """Write the rows of a task."""
        from tidemill.pipelines.writing import TaskAttempt, TaskWriter  # noqa: PLC0415 - kernels are loaded where they work

        context = _context()
        place = TaskAttempt(context.partitionId(), context.attemptNumber())
        with settled(), KafkaClient(self._options.client) as client:
            return TaskDone(TaskWriter(client, self._options, place, self._sink).write(iterator))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """All tasks are done."""
        with settled(), KafkaClient(self._options.client) as client:
            commit_all(client, self._sink, [each.written for each in _told(messages)])

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """A task failed for good; the others may have been killed in the middle of their work."""
        if not self._options.transactional:
            return
        # What went wrong is what the user has to hear of, not that it cannot be cleared away.
        with suppress(TidemillError), KafkaClient(self._options.client) as client:
            abort_all(client, self._sink, [each.written for each in _told(messages)])


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes micro-batches, each exactly once."""

    def __init__(self, options: SinkOptions, *, begins: bool) -> None:
        self._options = options
        self._plan: CommitPlan | None = None
        if begins and options.transactional:
            sink = sink_of(options.checkpoint)
            with KafkaClient(options.client) as client:
                self._plan = _BEGUN[sink] = begin(client, sink, _BEGUN.pop(sink, None))

    def write(self, iterator: Iterator["pa.RecordBatch"]) -> TaskDone:
        """Write the rows of a task."""
        from tidemill.pipelines.writing import TaskAttempt, TaskWriter, write_micro_batch  # noqa: PLC0415 - as above

        context = _context()
        place = TaskAttempt(context.partitionId(), context.attemptNumber())
        with settled(), KafkaClient(self._options.client) as client:
            if self._plan is None:
                return TaskDone(TaskWriter(client, self._options, place, "").write(iterator))
            query, batch = _query(context)
            written = write_micro_batch(client, self._options, self._plan, place, iterator, of=(query, batch))
            return TaskDone(written, self._plan, query)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """All tasks of a micro-batch are done."""
        told = _told(messages)
        if not told or told[0].plan is None:
            return
        with KafkaClient(self._options.client) as client:
            commit(client, told[0].plan, [each.written for each in told], told[0].query, batchId)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803, ARG002 - Spark's name
        """A task or the commit failed for good; the micro-batch will run again under the same number."""
        if self._options.transactional:
            with suppress(TidemillError), KafkaClient(self._options.client) as client:
                abandon(client, sink_of(self._options.checkpoint), [each.written for each in _told(messages)])


def _context() -> TaskContext:
    context = TaskContext.get()
    if context is None:
        raise PipelineError("rows are written by Spark's tasks only")
    return context


def _query(context: TaskContext) -> tuple[str, int]:
    query, batch = context.getLocalProperty(QUERY_ID), context.getLocalProperty(BATCH_ID)
    if query is None or batch is None:
        raise PipelineError("Spark does not say which query and micro-batch this task belongs to")
    return query, int(batch)


def _told(messages: Sequence[WriterCommitMessage | None]) -> list[TaskDone]:
    return [message for message in messages if isinstance(message, TaskDone)]
