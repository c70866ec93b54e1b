"""Rows a second from a topic into Spark and back, beside a Parquet scan of the same rows as the limit.

python -m benchmarks.spark_source [--full]
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import DataFrame, SparkSession

import tidemill.spark
from benchmarks import machine
from tidemill.testing import Broker

CODECS = ("none", "lz4", "zstd")
PARTITIONS = 2


def fill(servers: str, topic: str, total: int, size: int, codec: str) -> None:
    AdminClient({"bootstrap.servers": servers}).create_topics([NewTopic(topic, PARTITIONS)])[topic].result(30)
    settings = {"bootstrap.servers": servers, "linger.ms": 20, "batch.size": 500_000, "compression.type": codec}
    producer = Producer(settings)
    for number in range(total):
        value = f"{number:012} ".encode() * (size // 13 + 1)
        while True:
            try:
                producer.produce(topic, value[:size], key=str(number % 1000))
                break
            except BufferError:
                producer.poll(0.05)
    assert producer.flush(120) == 0


def best(run: Callable[[], object], rounds: int = 3) -> float:
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        run()
        times.append(time.perf_counter() - began)
    return min(times)


def noop(rows: DataFrame) -> None:
    rows.write.format("noop").mode("overwrite").save()


def compare(spark: SparkSession, servers: str, total: int, size: int, codec: str, folder: Path) -> None:
    topic = f"rows-{size}-{codec}"
    fill(servers, topic, total, size, codec)
    options = {"kafka.bootstrap.servers": servers, "subscribe": topic}
    rows = spark.read.format("tidemill").options(**options).load()
    values = spark.read.schema("value binary").format("tidemill").options(**options).load()
    lake = str(folder / topic)
    rows.write.option("compression", "uncompressed" if codec == "none" else codec).parquet(lake)
    parquet = best(lambda: noop(spark.read.parquet(lake)))
    sink = {"kafka.bootstrap.servers": servers, "topic": f"{topic}-again", "kafka.compression.type": codec}
    source = spark.read.parquet(lake).select("key", "value")
    steps = {
        "source, all columns": best(lambda: noop(rows)),
        "source, value only": best(lambda: noop(values)),
        "sink": best(lambda: source.write.format("tidemill").mode("append").options(**sink).save(), 2),
    }
    print(f"{size:>5} B {codec:<5} {'Parquet scan':<20}{total / parquet:>12,.0f} rows/s")
    for name, seconds in steps.items():
        print(f"{'':13} {name:<20}{total / seconds:>12,.0f} rows/s, {parquet / seconds:.2f}x of Parquet", flush=True)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--full", action="store_true")
    full = options.parse_args().full
    machine.head("spark_source")
    began = time.perf_counter()
    spark = tidemill.spark.session(f"local[{PARTITIONS}]", options={"spark.sql.parquet.compression.codec": "zstd"})
    print(f"session ready after {time.perf_counter() - began:.1f} s")
    with Broker(process=True) as broker, tempfile.TemporaryDirectory() as folder:
        for size, total in ((100, 1_000_000 if full else 200_000), (1000, 300_000 if full else 50_000)):
            for codec in CODECS if full else CODECS[:2]:
                compare(spark, broker.bootstrap_servers, total, size, codec, Path(folder))
    spark.stop()


if __name__ == "__main__":
    main()
