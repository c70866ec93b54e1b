"""The parallel consumer: its speed-up over one record at a time, its cost per record, its memory, and what a kill costs.

    python -m benchmarks.parallel_consumer [--full]

The first case is the one that Confluent's Parallel Consumer published: records of 0 to 5 ms of waiting, one partition,
1,000 keys kept in order (its figure there: 10.8x). Sequential and parallel runs are measured one after the other.
"""

import argparse
import asyncio
import random
import resource
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

from benchmarks import machine, peers
from benchmarks.throughput import create
from tidemill.client.parallel.consumer import ParallelConsumer
from tidemill.client.parallel.record import ParallelRecord

RECORDS = 10_000
KEYS = 1_000
SEQUENTIAL = 1_000
WORK_S = 0.005


def fill(address: str, topic: str, count: int) -> None:
    create(address, topic, 1)
    producer = Producer({"bootstrap.servers": address, "linger.ms": 5, "queue.buffering.max.messages": 1_000_000})
    for index in range(count):
        producer.produce(topic, b"%d" % index, key=b"k%d" % (index % KEYS), partition=0)
    assert producer.flush(120) == 0


def works() -> list[float]:
    """How long each record takes, the same for every run."""
    draw = random.Random(1)
    return [draw.random() * WORK_S for _ in range(RECORDS)]


def sequential_s(address: str, topic: str, waits: list[float]) -> float:
    """Seconds for each record of a plain loop that handles one record at a time."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": "one", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    first = consumer.poll(30)
    assert first is not None
    began = time.perf_counter()
    done = 0
    while done < SEQUENTIAL:
        for message in consumer.consume(min(500, SEQUENTIAL - done), 30):
            time.sleep(waits[message.offset() % len(waits)])
            done += 1
    took = time.perf_counter() - began
    consumer.close()
    return took / SEQUENTIAL


class Counted:
    """Counts what is handled and ends the consumer after the last; the clock starts with the first."""

    def __init__(self, enough: int) -> None:
        self.enough, self.count = enough, 0
        self.began = self.ended = 0.0
        self.lock = threading.Lock()
        self.consumer: ParallelConsumer | None = None

    def start(self) -> None:
        self.began = self.began or time.perf_counter()

    def add(self) -> None:
        with self.lock:
            self.count += 1
            if self.count == self.enough and self.consumer is not None:
                self.ended = time.perf_counter()
                self.consumer.stop()


def parallel_s(address: str, topic: str, waits: list[float], workers: int, *, tasks: bool) -> float:
    counted = Counted(RECORDS)

    def handle(record: ParallelRecord) -> None:
        counted.start()
        time.sleep(waits[record.offset])
        counted.add()

    async def handle_async(record: ParallelRecord) -> None:
        counted.start()
        await asyncio.sleep(waits[record.offset])
        counted.add()

    group = f"p{workers}-{tasks}"
    counted.consumer = ParallelConsumer({"bootstrap.servers": address, "group.id": group}, [topic], workers=workers)
    counted.consumer.run(handle_async if tasks else handle)
    return (counted.ended - counted.began) / RECORDS


def speed_up(address: str) -> None:
    waits = works()
    fill(address, "anchor", RECORDS)
    base = sequential_s(address, "anchor", waits)
    print(f"one record at a time        {base * 1e3:8.3f} ms a record")
    for workers, tasks in ((100, False), (200, False), (200, True), (1_000, True)):
        each = parallel_s(address, "anchor", waits, workers, tasks=tasks)
        kind = "tasks" if tasks else "threads"
        print(f"{workers:>5} {kind:<8} key order    {each * 1e3:8.3f} ms a record, {base / each:5.1f}x", flush=True)


def io_bound(address: str) -> None:
    """Handlers that wait 20 ms for somebody else, as a call over the network does."""
    count, wait_s = 4_000, 0.02
    fill(address, "waiting", count)
    counted = Counted(count)

    async def handle(_: ParallelRecord) -> None:
        counted.start()
        await asyncio.sleep(wait_s)
        counted.add()

    counted.consumer = ParallelConsumer({"bootstrap.servers": address, "group.id": "waiting"}, ["waiting"], workers=400)
    counted.consumer.run(handle)
    each = (counted.ended - counted.began) / count
    print(
        f"  400 tasks, 20 ms of waiting  {each * 1e3:8.3f} ms a record, {wait_s / each:5.1f}x of waiting one by one",
        flush=True,
    )


def commit_latency(address: str) -> None:
    """A synchronous commit of one partition, as the consumer makes it."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": "commits", "enable.auto.commit": False})
    took = []
    for offset in range(200):
        began = time.perf_counter()
        consumer.commit(offsets=[TopicPartition("anchor", 0, offset)], asynchronous=False)
        took.append(time.perf_counter() - began)
    consumer.close()
    ordered = sorted(took)
    print(
        f"a commit                    p50 {ordered[100] * 1e3:.2f} ms, p99 {ordered[197] * 1e3:.2f} ms, on the disk",
        flush=True,
    )


def overhead(address: str, count: int) -> None:
    """What the consumer adds to a record when the handler does nothing, over a bare poll loop."""
    fill(address, "noop", count)
    bare = Consumer({"bootstrap.servers": address, "group.id": "bare", "enable.auto.commit": False})
    bare.assign([TopicPartition("noop", 0, 0)])
    assert bare.poll(30) is not None
    began, left = time.perf_counter(), count - 1
    while left:
        left -= len(bare.consume(min(left, 1_000), 30))
    loop_s = (time.perf_counter() - began) / count
    bare.close()
    for tasks in (False, True):
        counted = Counted(count)

        def handle(_: ParallelRecord, counted: Counted = counted) -> None:
            counted.start()
            counted.add()

        async def handle_async(_: ParallelRecord, counted: Counted = counted) -> None:
            counted.start()
            counted.add()

        settings = {"bootstrap.servers": address, "group.id": f"noop-{tasks}"}
        counted.consumer = ParallelConsumer(settings, ["noop"], workers=8, ordering="key")
        counted.consumer.run(handle_async if tasks else handle)
        each = (counted.ended - counted.began) / count
        kind = "tasks" if tasks else "threads"
        print(
            f"no-op handler, {kind:<8}     {each * 1e6:8.1f} us a record; bare loop {loop_s * 1e6:.1f} us; extra {(each - loop_s) * 1e6:.1f} us",
            flush=True,
        )


def memory(address: str, count: int) -> None:
    """Resident memory while so many records are in hand."""
    fill(address, "held", count)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    gate = threading.Event()
    consumer = ParallelConsumer(
        {"bootstrap.servers": address, "group.id": "held"}, ["held"], workers=4, max_in_flight=count
    )
    thread = threading.Thread(target=consumer.run, args=(lambda _: gate.wait(60),))
    thread.start()
    while sum((stats := consumer.stats(), stats.waiting, stats.in_flight)[1:]) < count:
        time.sleep(0.05)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    print(f"{count:,} records in hand       {grown / 1024:8.0f} MB more, {grown * 1024 / count:.0f} bytes each")
    gate.set()
    consumer.stop(drain=False)
    thread.join()


_VICTIM = """
import os, sys, time
from tidemill.client.parallel.consumer import ParallelConsumer
out = os.open(sys.argv[2], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
def handle(record):
    if record.offset == 100: time.sleep(3600)
    time.sleep(0.02)
    os.write(out, b"%d\\n" % record.offset)
ParallelConsumer({"bootstrap.servers": sys.argv[1], "group.id": "victim", "group.instance.id": "v"}, ["victim"], workers=50,
                 commit_interval_ms=20).run(handle)
"""


def after_a_kill(address: str) -> None:
    """Half of the records complete beyond a gap, a commit every 20 ms, then kill -9: how many are handled twice?"""
    fill(address, "victim", 4_000)
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "handled")
        out.touch()
        child = subprocess.Popen(
            [sys.executable, "-c", _VICTIM, address, str(out)], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )
        while out.read_bytes().count(b"\n") < 2_000:
            time.sleep(0.01)
        child.kill()
        child.wait()
        before = {int(line) for line in out.read_bytes().split()}
    twice, missing = [0], set(range(4_000)) - before
    lock = threading.Lock()

    def handle(record: ParallelRecord) -> None:
        with lock:
            twice[0] += record.offset in before
            missing.discard(record.offset)
            if not missing:
                heir.stop()

    heir = ParallelConsumer(
        {"bootstrap.servers": address, "group.id": "victim", "group.instance.id": "v"}, ["victim"], workers=50
    )
    heir.run(handle)
    print(f"kill -9 with {len(before):,} complete beyond a gap: {twice[0]} handled twice, 0 lost")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--full", action="store_true")
    full = options.parse_args().full
    machine.head("parallel_consumer")
    with peers.tidemill() as broker:
        speed_up(broker.address)
        io_bound(broker.address)
        commit_latency(broker.address)
        overhead(broker.address, 200_000 if full else 50_000)
        memory(broker.address, 100_000)
        after_a_kill(broker.address)


if __name__ == "__main__":
    main()
