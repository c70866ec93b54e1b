"""Produce with and without counting: four brokers in the same run, whose rounds take turns.

    python -m benchmarks.counting [--rounds 200]

Counting cannot be switched off in a broker, so two of them run a copy of the source without the lines that count
(`benchmarks/uncounted.py`). A raw client keeps some requests in flight. In every round each broker has one turn, in
random order. Prints processor seconds of the broker per GB and requests per second: medians of all rounds, and the
ratios of the turns of one round with their quartiles. "equal brokers" compares the two that count with each other: so
much is noise.
"""

import argparse
import random
import socket
import statistics
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

from benchmarks.machine import head
from benchmarks.peers import Peer, tidemill
from benchmarks.throughput import create
from benchmarks.uncounted import uncounted_tree
from tidemill.client.kafka.produce import produce_request
from tidemill.model.topics import TopicPartition
from tidemill.records.build import NewRecord, build_batch

ROUNDS = 200
WARM_ROUNDS = 20
IN_FLIGHT = 5
SEED = 22
TOPIC = "orders"
PRODUCE_KEY, PRODUCE_VERSION = 0, 9


class CountingCase(NamedTuple):
    """What a request has, and how many of them are a round."""

    name: str
    records: int
    value_bytes: int
    requests: int


CASES = (
    CountingCase("16 records of 1 KB in a request", 16, 1_024, 250),
    CountingCase("one record of 100 B in a request", 1, 100, 250),
)


class Round(NamedTuple):
    """What one round took: processor seconds of the broker, and seconds of the clock."""

    cpu_s: float
    wall_s: float


def produce_frame(case: CountingCase) -> bytes:
    """A request of Produce, with its size."""
    value = b"v" * case.value_bytes
    batch = build_batch([NewRecord(None, value, timestamp=time.time_ns() // 1_000_000)] * case.records)
    request = produce_request({TopicPartition(TOPIC, 0): batch}, acks=1, timeout_ms=30_000, transactional_id=None)
    header = struct.pack(">hhih", PRODUCE_KEY, PRODUCE_VERSION, 7, -1) + b"\0"
    body = header + b"".join(map(bytes, request.write(PRODUCE_VERSION)))
    return struct.pack(">i", len(body)) + body


class RawProducer:
    """One connection to one broker."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        host, port = peer.address.rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._answers = self._socket.makefile("rb")
        # The clock of the other process, as clock_getcpuclockid(3) returns it.
        self._clock = (~peer.process.pid << 3) | 2

    def close(self) -> None:
        """Close the connection."""
        self._answers.close()
        self._socket.close()

    def round(self, frame: bytes, requests: int) -> Round:
        """Send so many requests, a few at a time."""
        cpu, wall = time.clock_gettime(self._clock), time.perf_counter()
        for _ in range(IN_FLIGHT):
            self._socket.sendall(frame)
        for number in range(requests):
            (size,) = struct.unpack(">i", self._answers.read(4))
            self._answers.read(size)
            if number < requests - IN_FLIGHT:
                self._socket.sendall(frame)
        return Round(time.clock_gettime(self._clock) - cpu, time.perf_counter() - wall)


@contextmanager
def producer(source: str | None = None) -> Iterator[RawProducer]:
    """A broker, from another source tree if one is given, and its client."""
    with tidemill(source=source) as peer:
        create(peer.address, TOPIC, 1)
        made = RawProducer(peer)
        try:
            yield made
        finally:
            made.close()


def measure(case: CountingCase, producers: list[RawProducer], rounds: int) -> list[list[Round]]:
    """The rounds of each producer."""
    rng = random.Random(SEED)
    frame = produce_frame(case)
    found: list[list[Round]] = [[] for _ in producers]
    for number in range(WARM_ROUNDS + rounds):
        for index in rng.sample(range(len(producers)), len(producers)):
            took = producers[index].round(frame, case.requests)
            if number >= WARM_ROUNDS:
                found[index].append(took)
    return found


def ratios(label: str, some: list[float], others: list[float]) -> str:
    """The ratio of neighbouring rounds: median and quartiles."""
    low, middle, high = statistics.quantiles([a / b for a, b in zip(some, others, strict=True)], n=4)
    return f"{label} {middle:.3f}x ({low:.3f} to {high:.3f})"


def report(case: CountingCase, found: list[list[Round]]) -> None:
    """Print one case. The brokers with even numbers count."""
    gigabytes = case.requests * case.records * case.value_bytes / 1e9
    cpu = [[each.cpu_s / gigabytes for each in rounds] for rounds in found]
    rate = [[case.requests / each.wall_s for each in rounds] for rounds in found]
    print(f"{case.name}, {len(cpu[0])} rounds of {case.requests:,}")
    for name, first in (("counting", 0), ("not counting", 1)):
        used, served = (statistics.median(each[first] + each[first + 2]) for each in (cpu, rate))
        print(f"  {name:<24}{used:8.2f} s/GB {served:8,.0f} requests/s")
    for name, some, others in (("counting / not counting", (0, 2), (1, 3)), ("equal brokers", (0,), (2,))):
        pairs = [
            [[value for index in side for value in each[index]] for side in (some, others)] for each in (cpu, rate)
        ]
        print(f"  {name:<24}{ratios('processor', *pairs[0])}, {ratios('rate', *pairs[1])}")


def main() -> None:
    """Run the benchmark."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=ROUNDS)
    chosen = options.parse_args()
    head("counting")
    with ExitStack() as running:
        source = running.enter_context(uncounted_tree())
        producers = [running.enter_context(producer(each)) for each in (None, source, None, source)]
        for case in CASES:
            report(case, measure(case, producers, chosen.rounds))


if __name__ == "__main__":
    main()
