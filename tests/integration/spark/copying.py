"""A driver that tests kill: a query from a topic to a topic or a lake, on a session that waits for a start signal.

  python -m tests.integration.spark.copying {topic|lake} SERVERS SOURCE TARGET CHECKPOINT TASKS JAVA-OPTIONS

It prints `ready` when its session has started. It begins when it reads the number of rows for a micro-batch, and prints
the number of every micro-batch that it processes. The query ends at the end of the topic.
"""

import sys
import time
from pathlib import Path
from typing import NamedTuple

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import tidemill.spark
from tidemill.pipelines.lake.opening import open_lake
from tidemill.pipelines.spark.archive import Archive, start_archive
from tidemill.pipelines.spec.core.broker import KafkaBroker

READY = "ready"
WORKING = "Processing new data"
"""Spark's status message of a query that is in a micro-batch."""
LOOK_S = 0.01
RECORD_BYTES = 60
"""The approximate size of a test record, because an archive is limited in bytes."""


class Progress(NamedTuple):
    """Spark's checkpoint of a query: the last planned micro-batch, and the last finished one."""

    planned: int
    done: int

    @classmethod
    def of(cls, checkpoint: Path) -> "Progress":
        def last(log: str) -> int:
            folder = checkpoint / log
            names = [file.name for file in folder.iterdir()] if folder.exists() else []
            return max((int(name) for name in names if name.isdecimal()), default=-1)

        return cls(last("offsets"), last("commits"))


class Copy(NamedTuple):
    """What to copy, and in which portions."""

    servers: str
    source: str
    target: str
    checkpoint: Path
    tasks: int
    rows: int

    def to_topic(self, spark: SparkSession) -> StreamingQuery:
        """A query that puts every value in brackets."""
        rows = (
            spark.readStream.format("tidemill")
            .option("kafka.bootstrap.servers", self.servers)
            .option("subscribe", self.source)
            .option("startingOffsets", "earliest")
            .option("minPartitions", str(self.tasks))
            .option("maxOffsetsPerTrigger", str(self.rows))
            .load()
            .selectExpr("key", "concat('<', cast(value as string), '>') as value")
        )
        writer = rows.writeStream.format("tidemill").option("kafka.bootstrap.servers", self.servers)
        writer = writer.option("topic", self.target).option("checkpointLocation", str(self.checkpoint))
        return writer.trigger(availableNow=True).start()

    def to_lake(self, spark: SparkSession) -> StreamingQuery:
        """The query of `tidemill pipeline archive`."""
        wanted = Archive(KafkaBroker(self.servers), self.source, bytes_per_trigger=self.rows * RECORD_BYTES)
        start_archive(spark, open_lake(Path(self.target)), wanted)
        (query,) = spark.streams.active
        return query


def main() -> None:
    kind, servers, source, target, checkpoint, tasks, java = sys.argv[1:]
    options = {"spark.driver.extraJavaOptions": java, "spark.driver.memory": "512m"}
    spark = tidemill.spark.session("local[1]", name="copying", options=options)
    print(READY, flush=True)
    copy = Copy(servers, source, target, Path(checkpoint), int(tasks), int(sys.stdin.readline()))
    query = copy.to_topic(spark) if kind == "topic" else copy.to_lake(spark)
    said = -1
    while query.isActive:
        if query.status["message"] == WORKING:
            planned, done = Progress.of(copy.checkpoint)
            if planned > max(said, done):
                said = planned
                print(planned, flush=True)
        time.sleep(LOOK_S)
    query.awaitTermination()


if __name__ == "__main__":
    main()
