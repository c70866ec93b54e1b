"""`format("tidemill")`: which reader or writer Spark gets for which options."""

from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, DataSourceReader, DataSourceStreamReader
from pyspark.sql.datasource import DataSourceStreamWriter as SparkStreamWriter
from pyspark.sql.types import StructType

from tidemill.pipelines.core.errors import WrongOption
from tidemill.pipelines.core.options import columns_of, parse_source
from tidemill.pipelines.core.sink import SinkOptions, check_columns, parse_sink
from tidemill.pipelines.spark.schema import columns_in, schema_of
from tidemill.pipelines.spark.sink import BatchWriter, StreamWriter
from tidemill.pipelines.spark.source import BatchReader
from tidemill.pipelines.spark.stream import StreamReader

NAME = "tidemill"


class TidemillSource(DataSource):
    """Topics of any Kafka broker as DataFrames, and back."""

    @classmethod
    def name(cls) -> str:
        """What stands in format(...)."""
        return NAME

    def schema(self) -> StructType:
        """The columns, unless the user names those he wants with `.schema(...)`."""
        return schema_of(columns_of(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        """For spark.read."""
        return BatchReader(parse_source(self.options, streaming=False), columns_in(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """For spark.readStream."""
        return StreamReader(parse_source(self.options, streaming=True), columns_in(schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """For DataFrame.write."""
        if overwrite:
            raise WrongOption('a topic only grows: use mode("append")')
        return BatchWriter(self._sink(schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> SparkStreamWriter:  # noqa: N802, ARG002 - Spark's name
        """For DataFrame.writeStream; complete mode appends the whole result every time, as Spark's own sink does."""
        return StreamWriter(self._sink(schema))

    def _sink(self, schema: StructType) -> SinkOptions:
        options = parse_sink(self.options)
        check_columns({field.name: field.dataType.simpleString() for field in schema.fields}, options.topic)
        return options
