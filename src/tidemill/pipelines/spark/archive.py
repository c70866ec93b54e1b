"""The query of an archive: copies a topic with all its columns into a lake, by day.

The checkpoint is in the lake. If it was deleted, the query continues after the last rows of the lake.
"""

import json
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual alias

from tidemill.client.kafka import KafkaClient
from tidemill.pipelines.errors import PipelineError
from tidemill.pipelines.lake.core.contents import DATE
from tidemill.pipelines.lake.interface import CHECKPOINT, Lake, check_rows
from tidemill.pipelines.source.core.positions import EARLIEST
from tidemill.pipelines.spark.lake import into_lake, schema_of
from tidemill.pipelines.spark.queries import OF_COMMANDS, Queries
from tidemill.pipelines.spec.core.broker import KafkaBroker

BYTES_PER_TRIGGER = 256 * 1024 * 1024
"""The limit of a micro-batch. Files get a good size for readers, and a restart repeats little."""
FOLLOW_EVERY = "5 seconds"


@dataclass(frozen=True, slots=True)
class Archive:
    """What to archive, and how."""

    broker: KafkaBroker
    topic: str
    follow: bool = False
    skip_lost: bool = False
    bytes_per_trigger: int = BYTES_PER_TRIGGER


def start_archive(spark: SparkSession, lake: Lake, wanted: Archive) -> Queries:
    """Start the query. It ends at the end of the topic unless it follows."""
    checkpoint = lake.root / CHECKPOINT
    lake.recover()
    rows = (
        spark.readStream.format("tidemill")
        .options(**wanted.broker.kafka)
        .option("subscribe", wanted.topic)
        .option("includeHeaders", "true")
        .option("failOnDataLoss", str(not wanted.skip_lost).lower())
        .option("failOnRecreation", "true")
        .option("startingOffsets", _beginning(lake, wanted, checkpoint))
        .option("maxBytesPerTrigger", str(wanted.bytes_per_trigger))
        .option("kafka.group.id", archive_group(wanted.topic))
        .load()
        .withColumn(DATE, F.to_date("timestamp"))
    )
    check_rows(lake, schema_of(rows), (DATE,))
    writer = rows.writeStream.option("checkpointLocation", str(checkpoint)).queryName(f"archive {wanted.topic}")
    writer = writer.foreachBatch(into_lake(lake, checkpoint, (DATE,), of_topic=True))
    trigger = writer.trigger(processingTime=FOLLOW_EVERY) if wanted.follow else writer.trigger(availableNow=True)
    return Queries({wanted.topic: trigger.start()}, OF_COMMANDS)


def archive_group(topic: str) -> str:
    """The consumer group that shows how far the archive of a topic is."""
    return f"tidemill-archive-{topic}"


def _beginning(lake: Lake, wanted: Archive, checkpoint: Path) -> str:
    """Where a query without a checkpoint starts: at the beginning, or after the rows of the lake."""
    files = lake.files()
    if any(file.partition < 0 for file in files):
        raise PipelineError(f"{lake.root} is a table by key, not an archive; archive into another folder")
    if (checkpoint / "metadata").exists() or not files:
        return "earliest"
    with KafkaClient(wanted.broker.options) as client:
        indexes = client.metadata([wanted.topic])[wanted.topic].leaders
    ends = dict.fromkeys(indexes, EARLIEST)
    for file in files:
        ends[file.partition] = max(ends.get(file.partition, 0), file.last + 1)
    return json.dumps({wanted.topic: ends})
