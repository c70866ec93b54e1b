"""The query of `tidemill pipeline latest`: turns a changelog into a table with the newest record of each key.

Spark finds the newest record of each key of a micro-batch. It passes those of a bucket to one task, which merges them
with the bucket's file (`lake.table`). The newest record is the one with the largest offset. So a key must stay in its
partition, as Kafka's own compaction requires.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual alias

from tidemill.pipelines.errors import WrongOption
from tidemill.pipelines.lake.core.contents import LakeFile
from tidemill.pipelines.lake.interface import CHECKPOINT, CommitStep, Lake, check_rows, never_null
from tidemill.pipelines.run.core.progress import KEYLESS
from tidemill.pipelines.spark.lake import FILES, NAME_DIGITS, query_of, schema_of
from tidemill.pipelines.spark.queries import OF_COMMANDS, Queries, line_of
from tidemill.pipelines.spec.core.broker import KafkaBroker

if TYPE_CHECKING:
    import pyarrow as pa

    from tidemill.pipelines.lake.table import Bucketing

BUCKETS = 16
BYTES_PER_TRIGGER = 256 * 1024 * 1024
FOLLOW_EVERY = "5 seconds"
META = ("partition", "offset", "timestamp")


@dataclass(frozen=True, slots=True)
class Latest:
    """Which changelog to read. With `schema`, the JSON in its values becomes columns."""

    broker: KafkaBroker
    topic: str
    schema: str | None = None
    follow: bool = False
    skip_lost: bool = False
    buckets: int = BUCKETS

    @property
    def key(self) -> str:
        """The column that identifies rows.

        With a schema it has an underscore, so that it differs from the schema's columns.
        """
        return "key" if self.schema is None else "_key"


def start_latest(spark: SparkSession, lake: Lake, wanted: Latest) -> Queries:
    """Start the query. It ends at the end of the topic unless it follows."""
    from tidemill.pipelines.lake.table import BUCKET, GONE, by_bucket  # noqa: PLC0415 - loaded only where it is used

    checkpoint = lake.root / CHECKPOINT
    lake.recover()
    by_bucket(lake.files())
    rows = (
        spark.readStream.format("tidemill")
        .options(**wanted.broker.kafka)
        .option("subscribe", wanted.topic)
        .option("startingOffsets", "earliest")
        .option("failOnDataLoss", str(not wanted.skip_lost).lower())
        .option("failOnRecreation", "true")
        .option("maxBytesPerTrigger", str(BYTES_PER_TRIGGER))
        .option("kafka.group.id", latest_group(wanted.topic))
        .load()
        .observe("keys", F.count_if(F.col("key").isNull()).alias(KEYLESS))
    )
    writer = rows.writeStream.option("checkpointLocation", str(checkpoint)).queryName(f"latest {wanted.topic}")
    _check(rows, wanted)
    check_rows(lake, schema_of(newest_of(rows, wanted).drop(GONE)), (BUCKET,))
    writer = writer.foreachBatch(into_table(lake, checkpoint, wanted))
    trigger = writer.trigger(processingTime=FOLLOW_EVERY) if wanted.follow else writer.trigger(availableNow=True)
    return Queries({wanted.topic: trigger.start()}, OF_COMMANDS)


def latest_group(topic: str) -> str:
    """The consumer group that shows how far the table of a topic is."""
    return f"tidemill-latest-{topic}"


def _check(rows: DataFrame, wanted: Latest) -> None:
    """Refuse an invalid schema before the query is started."""
    try:
        columns = newest_of(rows, wanted).columns
    except PySparkException as error:
        raise WrongOption(f"--schema: {line_of(str(error))}") from None
    twice = sorted({column for column in columns if columns.count(column) > 1})
    if twice:
        raise WrongOption(f"--schema: the table adds the column {twice[0]} itself; leave it out")


def into_table(lake: Lake, checkpoint: Path, wanted: Latest) -> Callable[[DataFrame, int], None]:
    """The function for foreachBatch."""
    from tidemill.pipelines.lake.table import BUCKET, GONE, Bucketing, by_bucket  # noqa: PLC0415 - loaded when used

    def add(rows: DataFrame, batch: int) -> None:
        query = query_of(checkpoint)
        lake.recover()
        if lake.holds(query, batch):
            return
        here = by_bucket(lake.files())
        paths = {bucket: [file.path for file in files] for bucket, files in here.items()}
        name = f"{batch:0{NAME_DIGITS}}-{uuid4().hex[:8]}"
        newest = newest_of(rows, wanted)
        schema = schema_of(newest.drop(GONE))
        check_rows(lake, schema, (BUCKET,))
        table = Bucketing(str(lake.root), name, paths, wanted.key, lake.keeps_columns, never_null(lake))
        merging = merging_in(table)
        merged = newest.groupBy("bucket").applyInArrow(merging, f"{FILES}, bucket int").collect()
        touched = {row["bucket"] for row in merged}
        files = [LakeFile(row["path"], row["rows"], row["size"]) for row in merged if row["path"] is not None]
        removed = tuple(file for bucket in touched for file in here.get(bucket, ()))
        if files or removed:
            lake.commit(CommitStep(query, batch, removed), files, schema)

    return add


def newest_of(rows: DataFrame, wanted: Latest) -> DataFrame:
    """The newest record of each key, with its bucket, and whether it deletes the key."""
    keyed = rows.where("key is not null")
    newest = keyed.groupBy("key").agg(F.max_by(F.struct("value", *META), "offset").alias("it"))
    bucket = F.pmod(F.crc32("key"), F.lit(wanted.buckets)).cast("int").alias("bucket")
    gone = F.col("it.value").isNull().alias("_gone")
    if wanted.schema is None:
        return newest.select("key", "it.*", bucket, gone)
    value = F.from_json(F.col("it.value").cast("string"), wanted.schema).alias("value")
    meta = [F.col(f"it.{name}").alias(f"_{name}") for name in META]
    found = newest.select(F.col("key").cast("string").alias("_key"), value, *meta, bucket, gone)
    return found.select("_key", "value.*", *(f"_{name}" for name in META), "bucket", "_gone")


def merging_in(table: "Bucketing") -> "Callable[[pa.Table], pa.Table]":
    """The function for the task of a bucket. It returns the file that it wrote, or none when no rows are left."""

    def merge(newest: "pa.Table") -> "pa.Table":
        import pyarrow as pa  # noqa: PLC0415 - loaded only where it is used

        from tidemill.pipelines.lake.table import BUCKET, merge_bucket  # noqa: PLC0415 - as above

        bucket = newest.column(BUCKET)[0].as_py()
        made = merge_bucket(table, newest)
        if not made.num_rows:
            made = pa.Table.from_pylist([{}], made.schema)
        return made.append_column(BUCKET, pa.array([bucket], pa.int32()))

    return merge
