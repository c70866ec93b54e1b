"""The batch reader. Offset ranges become tasks, and tasks yield Arrow record batches."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition, Not

from tidemill.client.kafka import KafkaClient
from tidemill.pipelines.source.core.offsets import OffsetRange
from tidemill.pipelines.source.core.options import SourceOptions
from tidemill.pipelines.source.core.pushdown import Comparison, Pushed
from tidemill.pipelines.source.planning import Planner
from tidemill.pipelines.spark.worker import settled

if TYPE_CHECKING:
    import pyarrow as pa


class Task(InputPartition):
    """The offset ranges of a task, as sent to it."""

    def __init__(self, wanted: tuple[OffsetRange, ...]) -> None:
        super().__init__(None)
        self.wanted = wanted


class TaskReader:
    """The part of both readers that runs in tasks."""

    def __init__(self, options: SourceOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        """The rows of a task. Spark may add a task when there is nothing to read; it has no rows."""
        from tidemill.pipelines.source.reading import read_task  # noqa: PLC0415 - kernels are loaded only where used

        if isinstance(partition, Task):
            with settled():
                yield from read_task(self._options, partition.wanted, self._columns)


class BatchReader(TaskReader, DataSourceReader):
    """Reads the records between two positions."""

    _pushed = Pushed()

    def partitions(self) -> Sequence[InputPartition]:
        """One task per partition of the topics; more if the options request it, fewer if many are small."""
        with KafkaClient(self._options.client) as client:
            return [Task(each) for each in Planner(client, self._options).batch(self._pushed)]


class FilteringReader(BatchReader):
    """A batch reader that receives the filters of the query. It is used only on request.

    The reason: Spark 4.3 stores the result of the filters with the DataFrame of `load()`. A second query of that
    DataFrame, or a second use of it in the same query, would apply the first filters and silently miss rows. A
    DataFrame that is used once is safe.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Read less where the filters allow it. All filters are returned, so that Spark checks every row."""
        self._pushed = Pushed.of(each for each in map(comparison_of, filters) if each is not None)
        return filters


def batch_reader(options: SourceOptions, columns: tuple[str, ...]) -> BatchReader:
    """The reader that the options request."""
    return (FilteringReader if options.push_filters else BatchReader)(options, columns)


def comparison_of(filter: Filter) -> Comparison | None:  # noqa: A002 - Spark's word
    """A Spark filter as a comparison; None when it applies to a part of a column."""
    inner: Any = filter.child if isinstance(filter, Not) else filter
    path: Sequence[str] = getattr(inner, "attribute", ())
    if len(path) != 1:
        return None
    return Comparison(path[0], type(inner).__name__, getattr(inner, "value", None), isinstance(filter, Not))
