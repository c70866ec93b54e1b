"""Queries for tests: topics as tables and streams, and streams that write to a topic."""

from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from tests.integration.spark.topics import LIMIT_S, Outside


def table(spark: SparkSession, outside: Outside, schema: str | None = None, **options: Any) -> DataFrame:
    reader = spark.read.format("tidemill").options(**{"kafka.bootstrap.servers": outside.servers, **options})
    return (reader if schema is None else reader.schema(schema)).load()


def stream(spark: SparkSession, outside: Outside, **options: Any) -> DataFrame:
    given = {"kafka.bootstrap.servers": outside.servers, "startingOffsets": "earliest", **options}
    return spark.readStream.format("tidemill").options(**given).load()


def to_topic(rows: DataFrame, outside: Outside, topic: str, checkpoint: Path, **trigger: Any) -> StreamingQuery:
    options = {"kafka.bootstrap.servers": outside.servers, "topic": topic, "checkpointLocation": str(checkpoint)}
    return rows.select("key", "value").writeStream.format("tidemill").options(**options).trigger(**trigger).start()


def run(rows: DataFrame, outside: Outside, topic: str, checkpoint: Path) -> StreamingQuery:
    query = to_topic(rows, outside, topic, checkpoint, availableNow=True)
    try:
        assert query.awaitTermination(LIMIT_S)
    finally:
        query.stop()
    return query


def ints(rows: DataFrame) -> list[int]:
    return sorted(int(row.value) for row in rows.select(F.col("value").cast("string").alias("value")).collect())
