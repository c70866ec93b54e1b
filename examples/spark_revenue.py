"""Orders in one topic become revenue per item in another, on Spark, each order counted once.

Needs a broker (`tidemill serve`), Java 17 or newer and `pip install 'tidemill[spark]'`. Run it twice: the second run
continues where the first one ended, because the checkpoint folder is kept in the current directory.
"""

import json
import random

from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name

import tidemill.spark

SERVERS = "127.0.0.1:9092"
CHECKPOINT = "revenue-checkpoint"
PRICES = {"teapot": 20, "kettle": 35, "cup": 4}


def place_orders(count: int) -> None:
    producer = Producer({"bootstrap.servers": SERVERS})
    draw = random.Random(7)
    for number in range(count):
        item = draw.choice(list(PRICES))
        order = {"item": item, "price": PRICES[item], "count": draw.randint(1, 3)}
        producer.produce("orders", key=str(number), value=json.dumps(order))
    if producer.flush(30):
        raise SystemExit("the orders could not be written")


def revenue(orders: DataFrame) -> DataFrame:
    order = F.from_json(F.col("value").cast("string"), "item string, price long, count long").alias("order")
    per_item = orders.select(order).groupBy("order.item").agg(F.sum(F.expr("order.price * order.count")).alias("sum"))
    return per_item.select(F.col("item").alias("key"), F.col("sum").cast("string").alias("value"))


def run(spark: SparkSession) -> None:
    source = {"kafka.bootstrap.servers": SERVERS, "subscribe": "orders", "startingOffsets": "earliest"}
    orders = spark.readStream.format("tidemill").options(**source).option("kafka.group.id", "revenue").load()
    sink = {"kafka.bootstrap.servers": SERVERS, "topic": "revenue", "checkpointLocation": CHECKPOINT}
    writer = revenue(orders).writeStream.format("tidemill").options(**sink).outputMode("complete")
    writer.trigger(availableNow=True).start().awaitTermination()


def totals(spark: SparkSession) -> DataFrame:
    written = spark.read.format("tidemill").option("kafka.bootstrap.servers", SERVERS).option("subscribe", "revenue")
    latest = written.load().groupBy(F.col("key").cast("string").alias("item"))
    return latest.agg(F.max_by(F.col("value").cast("string"), "offset").alias("revenue")).orderBy("item")


def main() -> None:
    place_orders(1000)
    spark = tidemill.spark.session()
    run(spark)
    totals(spark).show()
    spark.stop()


if __name__ == "__main__":
    main()
