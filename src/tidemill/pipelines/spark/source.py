"""The batch reader: ranges of offsets become tasks, tasks yield Arrow record batches."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from tidemill.client.raw import RawClient
from tidemill.pipelines.core.offsets import OffsetRange
from tidemill.pipelines.core.options import SourceOptions
from tidemill.pipelines.planning import Planner

if TYPE_CHECKING:
    import pyarrow as pa


class Task(InputPartition):
    """A range of offsets on its way to a task."""

    def __init__(self, wanted: OffsetRange) -> None:
        super().__init__(None)
        self.wanted = wanted


class TaskReader:
    """What both readers do in their tasks."""

    def __init__(self, options: SourceOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        """The rows of a task; none when Spark made up a task because there was nothing to read."""
        from tidemill.pipelines.reading import read_task  # noqa: PLC0415 - kernels are loaded where they work

        if isinstance(partition, Task):
            yield from read_task(self._options, partition.wanted, self._columns)


class BatchReader(TaskReader, DataSourceReader):
    """Reads what lies between two positions."""

    def partitions(self) -> Sequence[InputPartition]:
        """One task per partition of the topics, or more when the options ask for it."""
        with RawClient(self._options.client) as client:
            return [Task(each) for each in Planner(client, self._options).batch()]
