"""`format("tidemill")`: creates the reader or writer for the given options.

Spark calls this in Python workers of its own, one for each kind of call, and repeats the calls in every query and
micro-batch. `worker` describes the cost after each call.
"""

from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, DataSourceReader, DataSourceStreamReader
from pyspark.sql.datasource import DataSourceStreamWriter as SparkStreamWriter
from pyspark.sql.types import StructType

from tidemill.pipelines.errors import WrongOption
from tidemill.pipelines.source.core.options import columns_of, parse_source
from tidemill.pipelines.spark.schema import columns_in, schema_of
from tidemill.pipelines.spark.sink import BatchWriter, StreamWriter
from tidemill.pipelines.spark.source import batch_reader
from tidemill.pipelines.spark.stream import StreamReader
from tidemill.pipelines.spark.worker import settled
from tidemill.pipelines.topic.core.options import SinkOptions, check_columns, parse_sink

NAME = "tidemill"


class TidemillSource(DataSource):
    """Reads topics of any Kafka broker as DataFrames, and writes DataFrames to topics."""

    _is_copy = False
    """Whether this is a copy from another process. A micro-batch is committed by such a copy."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._is_copy = True

    @classmethod
    def name(cls) -> str:
        """The name in format(...)."""
        return NAME

    def schema(self) -> StructType:
        """The columns, unless the user selects them with `.schema(...)`."""
        with settled():
            return schema_of(columns_of(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        """The reader for spark.read."""
        with settled():
            return batch_reader(parse_source(self.options, streaming=False), columns_in(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """The reader for spark.readStream."""
        return StreamReader(parse_source(self.options, streaming=True), columns_in(schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """The writer for DataFrame.write."""
        if overwrite:
            raise WrongOption('a topic cannot be overwritten; use mode("append")')
        with settled():
            return BatchWriter(self._sink(schema, streaming=False))

    def streamWriter(self, schema: StructType, overwrite: bool) -> SparkStreamWriter:  # noqa: N802, ARG002 - Spark's name
        """The writer for DataFrame.writeStream.

        Complete mode appends the whole result every time, as in Spark's own sink.
        """
        with settled():  # called both to begin and to commit a micro-batch
            return StreamWriter(self._sink(schema, streaming=True), begins=not self._is_copy)

    def _sink(self, schema: StructType, *, streaming: bool) -> SinkOptions:
        options = parse_sink(self.options, streaming=streaming)
        check_columns({field.name: field.dataType.simpleString() for field in schema.fields}, options.topic)
        return options
