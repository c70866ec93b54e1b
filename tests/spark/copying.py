"""A streaming query from topic to topic, and a driver of it that can be killed: python -m tests.spark.copying ..."""

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
    servers, source, target, checkpoint, tasks, rows = sys.argv[1:]
    spark = tidemill.spark.session("local[2]", name="copying", options=LEAN)
    copy = Copy(servers, source, target, Path(checkpoint), int(tasks), int(rows))
    copy.checkpoint.with_name("ready").touch()
    copy.start(spark).awaitTermination()


if __name__ == "__main__":
    main()
