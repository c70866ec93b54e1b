"""The batch reader: ranges of offsets become tasks, tasks yield Arrow record batches."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition, Not

from tidemill.client.kafka import KafkaClient
from tidemill.pipelines.core.offsets import OffsetRange
from tidemill.pipelines.core.options import SourceOptions
from tidemill.pipelines.core.pushdown import Comparison, Pushed
from tidemill.pipelines.planning import Planner
from tidemill.pipelines.spark.worker import settled

if TYPE_CHECKING:
    import pyarrow as pa


class Task(InputPartition):
    """Ranges of offsets on their way to a task."""

    def __init__(self, wanted: tuple[OffsetRange, ...]) -> None:
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
            with settled():
                yield from read_task(self._options, partition.wanted, self._columns)


class BatchReader(TaskReader, DataSourceReader):
    """Reads what lies between two positions."""

    _pushed = Pushed()

    def partitions(self) -> Sequence[InputPartition]:
        """One task per partition of the topics, more when the options ask for it, fewer when many are small."""
        with KafkaClient(self._options.client) as client:
            return [Task(each) for each in Planner(client, self._options).batch(self._pushed)]


class FilteringReader(BatchReader):
    """A batch reader to which Spark tells the filters of the query, for those who ask for it.

    Not for everybody: Spark 4.3 keeps what a reader made of the filters with the DataFrame that `load()` gave. A second
    query of that DataFrame, or a second use of it in the same query, would read what the first filters left, and miss
    rows without a word. A DataFrame that is used once is safe.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Read less where the filters allow it; all are handed back, so that Spark checks every row."""
        self._pushed = Pushed.of(each for each in map(comparison_of, filters) if each is not None)
        return filters


def batch_reader(options: SourceOptions, columns: tuple[str, ...]) -> BatchReader:
    """The reader that the options ask for."""
    return (FilteringReader if options.push_filters else BatchReader)(options, columns)


def comparison_of(filter: Filter) -> Comparison | None:  # noqa: A002 - Spark's word
    """A filter of Spark as the core knows it; None when it is about a part of a column."""
    inner: Any = filter.child if isinstance(filter, Not) else filter
    path: Sequence[str] = getattr(inner, "attribute", ())
    if len(path) != 1:
        return None
    return Comparison(path[0], type(inner).__name__, getattr(inner, "value", None), isinstance(filter, Not))
