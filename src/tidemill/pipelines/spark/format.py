"""`format("tidemill")`: which reader or writer Spark gets for which options.

Spark calls this in Python workers of its own, one for each kind of question, and asks the same ones again in every
query and micro-batch: see `worker` for what they would do after each answer.
"""

from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, DataSourceReader, DataSourceStreamReader
from pyspark.sql.datasource import DataSourceStreamWriter as SparkStreamWriter
from pyspark.sql.types import StructType

from tidemill.pipelines.core.errors import WrongOption
from tidemill.pipelines.core.options import columns_of, parse_source
from tidemill.pipelines.core.sink import SinkOptions, check_columns, parse_sink
from tidemill.pipelines.spark.schema import columns_in, schema_of
from tidemill.pipelines.spark.sink import BatchWriter, StreamWriter
from tidemill.pipelines.spark.source import batch_reader
from tidemill.pipelines.spark.stream import StreamReader
from tidemill.pipelines.spark.worker import settled

NAME = "tidemill"


class TidemillSource(DataSource):
    """Topics of any Kafka broker as DataFrames, and back."""

    _travelled = False
    """Whether this is a copy that came from another process, as those are that commit a micro-batch."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._travelled = True

    @classmethod
    def name(cls) -> str:
        """What stands in format(...)."""
        return NAME

    def schema(self) -> StructType:
        """The columns, unless the user names those he wants with `.schema(...)`."""
        with settled():
            return schema_of(columns_of(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        """For spark.read."""
        with settled():
            return batch_reader(parse_source(self.options, streaming=False), columns_in(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """For spark.readStream."""
        return StreamReader(parse_source(self.options, streaming=True), columns_in(schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """For DataFrame.write."""
        if overwrite:
            raise WrongOption('a topic only grows: use mode("append")')
        with settled():
            return BatchWriter(self._sink(schema, streaming=False))

    def streamWriter(self, schema: StructType, overwrite: bool) -> SparkStreamWriter:  # noqa: N802, ARG002 - Spark's name
        """For DataFrame.writeStream; complete mode appends the whole result every time, as Spark's own sink does."""
        with settled():  # by whoever begins a micro-batch, and by whoever commits it
            return StreamWriter(self._sink(schema, streaming=True), begins=not self._travelled)

    def _sink(self, schema: StructType, *, streaming: bool) -> SinkOptions:
        options = parse_sink(self.options, streaming=streaming)
        check_columns({field.name: field.dataType.simpleString() for field in schema.fields}, options.topic)
        return options
