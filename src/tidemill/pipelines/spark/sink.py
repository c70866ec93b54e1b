"""The batch and streaming writers. `tidemill.pipelines.topic.committing` describes how exactly-once works.

Spark makes a new stream writer for every micro-batch on the driver's machine and sends it to the tasks. The micro-batch
begins there. For the commit Spark makes another writer, from a copy of the data source (see `format`), and passes it
the tasks' results, which include the plan.
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
from tidemill.pipelines.errors import PipelineError
from tidemill.pipelines.spark.checkpoint import sink_of
from tidemill.pipelines.spark.worker import settled
from tidemill.pipelines.topic.committing import CommitPlan, Written, abandon, abort_all, begin, commit, commit_all
from tidemill.pipelines.topic.core.options import SinkOptions

if TYPE_CHECKING:
    import pyarrow as pa

QUERY_ID = "sql.streaming.queryId"
"""Spark stores it in the checkpoint: it is stable across restarts, and unique to the query."""
BATCH_ID = "streaming.sql.batchId"
_BEGUN: dict[str, CommitPlan] = {}
"""The last plan of each sink begun in this process. Spark uses the same worker to begin all micro-batches."""


@dataclass(frozen=True)
class TaskDone(WriterCommitMessage):
    """The result of a task for the driver."""

    written: Written
    plan: CommitPlan | None = None
    query: str = ""


class BatchWriter(DataSourceArrowWriter):
    """Writes a DataFrame. All rows become visible after the last task, or none."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._sink = f"tidemill-{uuid4().hex}"

    def write(self, iterator: Iterator["pa.RecordBatch"]) -> TaskDone:
        """Write the rows of a task."""
        from tidemill.pipelines.topic.writing import TaskAttempt, TaskWriter  # noqa: PLC0415 - kernels are loaded only where used

        context = _context()
        place = TaskAttempt(context.partitionId(), context.attemptNumber())
        with settled(), KafkaClient(self._options.client) as client:
            return TaskDone(TaskWriter(client, self._options, place, self._sink).write(iterator))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Commit after all tasks are done."""
        with settled(), KafkaClient(self._options.client) as client:
            commit_all(client, self._sink, [each.written for each in _results(messages)])

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Abort after a task failed finally. Other tasks may have been killed while they wrote."""
        if not self._options.transactional:
            return
        # The user needs the original error, not a failure to clean up.
        with suppress(TidemillError), KafkaClient(self._options.client) as client:
            abort_all(client, self._sink, [each.written for each in _results(messages)])


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
        from tidemill.pipelines.topic.writing import TaskAttempt, TaskWriter, write_micro_batch  # noqa: PLC0415 - as above

        context = _context()
        place = TaskAttempt(context.partitionId(), context.attemptNumber())
        with settled(), KafkaClient(self._options.client) as client:
            if self._plan is None:
                return TaskDone(TaskWriter(client, self._options, place, "").write(iterator))
            query, batch = _query(context)
            written = write_micro_batch(client, self._options, self._plan, place, iterator, of=(query, batch))
            return TaskDone(written, self._plan, query)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Commit after all tasks of a micro-batch are done."""
        results = _results(messages)
        if not results or results[0].plan is None:
            return
        with KafkaClient(self._options.client) as client:
            commit(client, results[0].plan, [each.written for each in results], results[0].query, batchId)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803, ARG002 - Spark's name
        """Abort after a task or the commit failed finally. The micro-batch will run again under the same number."""
        if self._options.transactional:
            with suppress(TidemillError), KafkaClient(self._options.client) as client:
                abandon(client, sink_of(self._options.checkpoint), [each.written for each in _results(messages)])


def _context() -> TaskContext:
    context = TaskContext.get()
    if context is None:
        raise PipelineError("rows can only be written inside a Spark task")
    return context


def _query(context: TaskContext) -> tuple[str, int]:
    query, batch = context.getLocalProperty(QUERY_ID), context.getLocalProperty(BATCH_ID)
    if query is None or batch is None:
        raise PipelineError("Spark did not pass the query and micro-batch of this task")
    return query, int(batch)


def _results(messages: Sequence[WriterCommitMessage | None]) -> list[TaskDone]:
    return [message for message in messages if isinstance(message, TaskDone)]
