"""Streaming queries from topic to topic, and a driver of several to be killed: python -m tests.spark.copying ..."""

import sys
from pathlib import Path
from typing import NamedTuple

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import tidemill.spark

LEAN = {
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.driver.memory": "512m",
}
READY = "ready"


class Copy(NamedTuple):
    """What is copied, and in which portions."""

    servers: str
    source: str
    target: str
    checkpoint: Path
    tasks: int
    rows: int

    def start(self, spark: SparkSession) -> StreamingQuery:
        """The query that puts every value in brackets; it ends with the topic."""
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


def main() -> None:
    servers, source, folder, rows, *targets = sys.argv[1:]
    spark = tidemill.spark.session("local[2]", name="copying", options=LEAN)
    queries = []
    for each in targets:
        target, tasks = each.split(":")
        queries.append(Copy(servers, source, target, Path(folder, target), int(tasks), int(rows)).start(spark))
    Path(folder, READY).touch()
    for query in queries:
        query.awaitTermination()


if __name__ == "__main__":
    main()
