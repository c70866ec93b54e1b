"""The query of `tidemill pipeline report`: records and bytes of topics over time."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual alias

from tidemill.pipelines.errors import PipelineError
from tidemill.pipelines.spark.queries import line_of
from tidemill.pipelines.spec.core.broker import KafkaBroker

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Traffic:
    """The request: records of topics since a time, added up in steps of some seconds."""

    broker: KafkaBroker
    topics: Sequence[str]
    since_ms: int
    step_s: int


def traffic(spark: SparkSession, wanted: Traffic) -> "pa.Table":
    """Records and bytes by topic, partition and `at` (the start of the step, in ms)."""
    rows = (
        spark.read.format("tidemill")
        .schema("key binary, value binary, topic string, partition int, timestamp timestamp")
        .options(**wanted.broker.kafka)
        .option("subscribe", ",".join(wanted.topics))
        .option("startingTimestamp", str(wanted.since_ms))
        .option("startingOffsetsByTimestampStrategy", "latest")
        .option("failOnDataLoss", "false")
        .load()
    )
    step_ms = wanted.step_s * 1000
    at = F.unix_millis("timestamp")
    size = F.coalesce(F.octet_length("key"), F.lit(0)) + F.coalesce(F.octet_length("value"), F.lit(0))
    added = (
        rows.where(at >= wanted.since_ms)
        .groupBy("topic", "partition", (at - at % step_ms).alias("at"))
        .agg(F.count("*").alias("records"), F.sum(size).alias("bytes"))
        .orderBy("topic", "partition", "at")
    )
    try:
        return added.toArrow()
    except PySparkException as error:
        raise PipelineError(line_of(str(error))) from None
