"""Streams in tables (chDB) compared with segment files in one run: rates, bytes on disk, memory, sizes of inserts.

    python -m benchmarks.clickhouse_streams [--full] [--records 300000] [--producers 50] [--servers host:port,...]

`--servers` also measures ClickHouse servers. Each run creates a database `bench_...` and does not delete it. Without a
server, run `python -m tests.support.clickhouse_front FOLDER 8123` in another terminal: the HTTP front of the tests over
chDB.

librdkafka produces orders of about 150 bytes as JSON, with acks=all. `cold` reads after a restart, so that nothing is
in the broker's memory. In the last case many producers send one record at a time, and one insert serves all of them.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import psutil

from benchmarks import machine
from tidemill.testing import Broker

TOPIC = "orders"
SERVERS = "clickhouse"
FLAGS = {"segments": "segments:", "chdb": "chdb:", "chdb, no fsync": "chdb:?fsync=false"}
SMALL_S = 5.0


class Figure(NamedTuple):
    """The results of one storage."""

    produce_s: float
    follow_s: float
    cold_s: float
    disk_bytes: int
    resident_mb: float


def orders(count: int) -> Iterator[tuple[bytes, bytes]]:
    for number in range(count):
        customer = number * 7919 % 5000
        order = {
            "order": number,
            "customer": f"customer-{customer}",
            "country": ("de", "fr", "it", "es")[customer % 4],
            "items": [{"sku": f"sku-{number * 31 % 900}", "count": 1 + number % 3}],
            "total_cents": 500 + number * 37 % 20_000,
        }
        yield b"customer-%d" % customer, json.dumps(order).encode()


def produce(address: str, count: int, codec: str) -> float:
    from confluent_kafka import Producer

    producer = Producer(
        {
            "bootstrap.servers": address,
            "acks": "all",
            "linger.ms": 20,
            "compression.type": codec,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    failed: list[Any] = []
    loaded = list(orders(count))
    began = time.perf_counter()
    for key, value in loaded:
        while True:
            try:
                producer.produce(
                    TOPIC, value, key, partition=0, on_delivery=lambda e, _: failed.append(e) if e else None
                )
                break
            except BufferError:
                producer.poll(0.05)
    assert producer.flush(300) == 0
    assert not failed, failed[0]
    return time.perf_counter() - began


def consume(address: str, count: int) -> float:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": address, "group.id": "bench", "enable.auto.commit": False})
    began = time.perf_counter()
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    left = count
    while left:
        got = consumer.consume(min(left, 10_000), 60)
        assert got, f"{left} records are missing"
        left -= len(got)
    took = time.perf_counter() - began
    consumer.close()
    return took


def measure(streams: str, count: int, codec: str) -> Figure:
    folder = Path(tempfile.mkdtemp(prefix="tidemill-bench-"))
    try:
        broker = Broker(process=True, data_dir=folder, flags={"streams": streams, "grpc": "none", "http": "none"})
        with broker:
            produce_s = produce(broker.bootstrap_servers, count, codec)
            follow_s = consume(broker.bootstrap_servers, count)
            resident_mb = psutil.Process(broker._runner.pid).memory_info().rss / 1e6  # type: ignore[union-attr]
            broker.restart()
            cold_s = consume(broker.bootstrap_servers, count)
        return Figure(produce_s, follow_s, cold_s, _disk(folder, streams), resident_mb)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _disk(folder: Path, streams: str) -> int:
    """Bytes of the topic's records. Tables are merged first, as the engine does by itself later."""
    if streams.startswith(SERVERS):
        return 0  # on another machine
    if streams.startswith("segments"):
        return sum(each.stat().st_size for each in (folder / "streams" / TOPIC / "0").glob("*.log"))
    found = ask(folder, "OPTIMIZE TABLE messages FINAL", _PARTS)
    return int(found)


_PARTS = "SELECT sum(bytes_on_disk) FROM system.parts WHERE active AND table = 'messages' AND database = 'tidemill'"


def ask(folder: Path, *statements: str) -> str:
    code = (
        "import chdb, sys; c = chdb.connect(sys.argv[1]); c.query('USE tidemill'); "
        "print([c.query(each, 'TSV') for each in sys.argv[2:]][-1])"
    )
    command = [sys.executable, "-c", code, str(folder / "chdb"), *statements]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def small_producers(streams: str, producers: int) -> tuple[int, str]:
    """Records per second of many producers that wait for each record, and the resulting inserts."""
    from confluent_kafka import Producer

    folder = Path(tempfile.mkdtemp(prefix="tidemill-bench-"))
    sent = [0] * producers
    try:
        with Broker(
            process=True, data_dir=folder, flags={"streams": streams, "grpc": "none", "http": "none"}
        ) as broker:
            end = time.monotonic() + SMALL_S

            def work(place: int) -> None:
                producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 0, "acks": "all"})
                while time.monotonic() < end:
                    producer.produce(TOPIC, b"x" * 100, partition=0)
                    assert producer.flush(60) == 0
                    sent[place] += 1

            threads = [threading.Thread(target=work, args=(place,)) for place in range(producers)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        blocks = ""
        if streams.startswith("chdb"):
            blocks = ask(
                folder, "SELECT uniqExact(appended_at), round(count() / uniqExact(appended_at), 1) FROM messages"
            )
        return sum(sent), blocks
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _url(streams: str) -> str:
    """Servers get a new database each time, because a database belongs to the broker that created it."""
    return streams if streams in FLAGS.values() else f"{SERVERS}://{streams}/bench_{uuid4().hex[:8]}"


def _told_bytes(size: float, ratio: float) -> str:
    return f"{size:6.1f} B/record ({ratio:4.2f}x)" if size else f"{'on the servers':23}"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--full", action="store_true", help="a million records")
    options.add_argument("--records", type=int, default=300_000)
    options.add_argument("--producers", type=int, default=50)
    options.add_argument("--servers", help="HTTP addresses of ClickHouse servers to measure")
    chosen = options.parse_args()
    count = 1_000_000 if chosen.full else chosen.records
    machine.head("clickhouse_streams")
    flags = {**FLAGS, **({"servers": chosen.servers} if chosen.servers else {})}
    for codec in ("none", "lz4"):
        figures = {name: measure(_url(streams), count, codec) for name, streams in flags.items()}
        base = figures["segments"]
        for name, each in figures.items():
            print(
                f"{codec:5} {name:15} in {count / each.produce_s:9,.0f}/s ({base.produce_s / each.produce_s:4.2f}x)  "
                f"tail {count / each.follow_s:9,.0f}/s ({base.follow_s / each.follow_s:4.2f}x)  "
                f"cold {count / each.cold_s:9,.0f}/s ({base.cold_s / each.cold_s:4.2f}x)  "
                f"{_told_bytes(each.disk_bytes / count, each.disk_bytes / base.disk_bytes)}  "
                f"{each.resident_mb:5.0f} MB resident",
                flush=True,
            )
    for name, streams in flags.items():
        sent, blocks = small_producers(_url(streams), chosen.producers)
        inserts, size = blocks.split("\t") if blocks else ("", "")
        found = f", {inserts} inserts of {size} records on average" if blocks else ""
        print(
            f"{chosen.producers} producers, one record at a time, {name:15} {sent / SMALL_S:7,.0f}/s{found}", flush=True
        )


if __name__ == "__main__":
    main()
