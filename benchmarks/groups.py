"""Consumer groups: joining, heartbeats, commits, and starting with many groups, compared with Apache Kafka in one run.

    python -m benchmarks.groups [--full]

Real clients join and commit. Heartbeats are raw requests, because five thousand clients would be most of the load.
"""

import argparse
import asyncio
import signal
import struct
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from benchmarks import machine, peers
from benchmarks.growth import serve, stop
from benchmarks.throughput import brokers, create

HEARTBEAT, JOIN, SYNC, COMMIT = 12, 11, 14, 8
WAIT_S = 120


def string(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


def blob(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


class Raw:
    """A connection that sends the next request as soon as the last one is answered; in old, inflexible versions."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def connect(cls, address: str) -> "Raw":
        host, _, port = address.rpartition(":")
        return cls(*await asyncio.open_connection(host, int(port)))

    async def ask(self, key: int, version: int, body: bytes) -> bytes:
        frame = struct.pack(">hhi", key, version, 1) + string("bench") + body
        self._writer.write(struct.pack(">i", len(frame)) + frame)
        size = struct.unpack(">i", await self._reader.readexactly(4))[0]
        return (await self._reader.readexactly(size))[4:]

    async def join(self, group: str) -> tuple[int, str]:
        """Become the only member of a group; returns generation and member id."""
        body = string(group) + struct.pack(">ii", 1_800_000, 60_000) + string("") + string("consumer")
        answer = await self.ask(JOIN, 1, body + struct.pack(">i", 1) + string("range") + blob(b""))
        error, generation = struct.unpack_from(">hi", answer)
        assert error == 0, error
        position = 6
        position += 2 + struct.unpack_from(">h", answer, position)[0]
        position += 2 + struct.unpack_from(">h", answer, position)[0]
        length = struct.unpack_from(">h", answer, position)[0]
        member = answer[position + 2 : position + 2 + length].decode()
        synced = await self.ask(
            SYNC, 0, string(group) + struct.pack(">i", generation) + string(member) + struct.pack(">i", 0)
        )
        assert struct.unpack_from(">h", synced)[0] == 0
        return generation, member

    async def close(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()


def first_record_s(peer: peers.Peer, members: int) -> float:
    """Time from the first subscribe until every member has a record."""
    topic = f"join-{members}"
    create(peer.address, topic, members)
    producer = Producer({"bootstrap.servers": peer.address})
    for partition in range(members):
        producer.produce(topic, b"x", partition=partition)
    assert producer.flush(WAIT_S) == 0
    settings = {
        "bootstrap.servers": peer.address,
        "group.id": topic,
        "auto.offset.reset": "earliest",
        "heartbeat.interval.ms": 500,
    }
    consumers = [Consumer(settings) for _ in range(members)]
    began = time.perf_counter()
    for consumer in consumers:
        consumer.subscribe([topic])
    waiting = set(range(members))
    seen = 0
    while seen < members and time.perf_counter() - began < WAIT_S:
        for index in sorted(waiting):
            message = consumers[index].poll(0.001)
            seen += message is not None and not message.error()
    took = time.perf_counter() - began
    closers = [threading.Thread(target=consumer.close) for consumer in consumers]
    for closer in closers:
        closer.start()
    for closer in closers:
        closer.join()
    return took


async def heartbeat_us(peer: peers.Peer, members: int, rounds: int) -> float:
    """Processor time of the broker for one heartbeat, with this many members."""
    connection = await Raw.connect(peer.address)
    known = [(f"hb-{index}", *await connection.join(f"hb-{index}")) for index in range(members)]
    before = peer.cpu_s()
    for _ in range(rounds):
        for group, generation, member in known:
            answer = await connection.ask(HEARTBEAT, 0, string(group) + struct.pack(">i", generation) + string(member))
            assert answer == b"\0\0"
    used = peer.cpu_s() - before
    await connection.close()
    return used / (members * rounds) * 1e6


async def commits_per_s(peer: peers.Peer, connections: int, seconds: float) -> float:
    """Commits of one partition each, by groups without members, from this many connections."""
    create(peer.address, f"commit-{connections}", 1)
    done = 0
    deadline = time.perf_counter() + seconds

    async def commit(index: int) -> None:
        nonlocal done
        connection = await Raw.connect(peer.address)
        offset = 0
        while time.perf_counter() < deadline:
            offset += 1
            place = (
                struct.pack(">i", 1) + string(f"commit-{connections}") + struct.pack(">iiq", 1, 0, offset) + string("")
            )
            body = (
                string(f"g{connections}-{index}") + struct.pack(">i", -1) + string("") + struct.pack(">q", -1) + place
            )
            answer = await connection.ask(COMMIT, 2, body)
            assert answer[-2:] == b"\0\0", answer
            done += 1
        await connection.close()

    await asyncio.gather(*(commit(index) for index in range(connections)))
    return done / seconds


def start_with_groups(count: int) -> None:
    """Start time of a broker with this many groups, compared with an empty one."""
    with tempfile.TemporaryDirectory(prefix="tidemill-groups-") as folder:
        child, address, empty_s = serve(folder)
        create(address, "t", 1)
        asyncio.run(fill_groups(address, count))
        stop(child, signal.SIGTERM)
        child, address, full_s = serve(folder)
        _check(address, count)
        stop(child, signal.SIGTERM)
        print(
            f"start with {count:,} groups: {full_s:.2f} s, {full_s / empty_s:.2f}x of an empty broker ({empty_s:.2f} s)"
        )


async def fill_groups(address: str, count: int) -> None:
    connections = [await Raw.connect(address) for _ in range(50)]

    async def commit(connection: Raw, start: int) -> None:
        for index in range(start, count, len(connections)):
            place = struct.pack(">i", 1) + string("t") + struct.pack(">iiq", 1, 0, index) + string("")
            body = string(f"g{index}") + struct.pack(">i", -1) + string("") + struct.pack(">q", -1) + place
            assert (await connection.ask(COMMIT, 2, body))[-2:] == b"\0\0"

    await asyncio.gather(*(commit(connection, start) for start, connection in enumerate(connections)))
    for connection in connections:
        await connection.close()


def _check(address: str, count: int) -> None:
    reader = Consumer({"bootstrap.servers": address, "group.id": f"g{count - 1}"})
    assert reader.committed([TopicPartition("t", 0, OFFSET_BEGINNING)], WAIT_S)[0].offset == count - 1
    reader.close()


def first_record_ms(peer: peers.Peer, members: int) -> float:
    return first_record_s(peer, members) * 1e3


def commits_rate(peer: peers.Peer, connections: int) -> float:
    return asyncio.run(commits_per_s(peer, connections, 3))


def table(name: str, unit: str, running: list[peers.Peer], measure: Callable[[peers.Peer], float]) -> None:
    figures = [measure(peer) for peer in running]
    text = ", ".join(f"{peer.name} {figure:,.1f}" for peer, figure in zip(running, figures, strict=True))
    ratio = f"; ratio {figures[0] / figures[1]:.2f}x" if len(figures) == 2 and figures[1] else ""
    print(f"{name:<52}{text} {unit}{ratio}", flush=True)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--full", action="store_true")
    full = options.parse_args().full
    machine.head("groups")
    # The same setting as for Kafka: a join does not wait for further members.
    with brokers("--set", "group.initial.rebalance.delay.ms=0") as running:
        for members in (1, 10, 100):
            table(
                f"subscribe to first record, {members} members",
                "ms",
                running,
                partial(first_record_ms, members=members),
            )
        members = 5_000 if full else 1_000
        table(
            f"a heartbeat, {members:,} members",
            "us of processor",
            running,
            lambda peer: asyncio.run(heartbeat_us(peer, members, 3)),
        )
        for connections in (1, 16):
            table(
                f"commits from {connections} connections",
                "a second",
                running,
                partial(commits_rate, connections=connections),
            )
    start_with_groups(10_000 if full else 2_000)


if __name__ == "__main__":
    main()
