"""A cluster of three brokers: the cost of replication, the speed of catch-up, the time of a failover.

    python -m benchmarks.replication [--full] [--mb 60]

Everything runs on one machine, with one etcd: the brokers share its cores and its disk, so three copies cost more here
than on three machines. Ratios are between topics of one and of three replicas, measured in one run, in turn.
"""

import argparse
import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from statistics import median

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from benchmarks import machine
from tidemill.replication.lag import decode_lags
from tidemill.streams.core.insync import Lag
from tidemill.testing.child import Child

VALUE = bytes(1024)
TTL_MS = 3000
LOAD = 5_000.0
"""Records of 1 KiB a second while the lag is measured."""
BROKERS = (1, 2, 3)


class Cluster:
    """Three brokers and one etcd."""

    def __init__(self, home: Path, etcd: str) -> None:
        self._home = home
        self._etcd = etcd
        self._ports = {number: _free_port() for number in BROKERS}
        self._running: dict[int, Child] = {}
        for number in BROKERS:
            self.start(number)
        self.bootstrap = ",".join(f"127.0.0.1:{port}" for port in self._ports.values())
        self.admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    def start(self, number: int) -> None:
        flags = {
            "node-id": str(number),
            "kafka": f"127.0.0.1:{self._ports[number]}",
            "grpc": "none",
            "http": "none",
            "timelines": "memory:",
            "coordination": self._etcd,
            "data-dir": str(self._home / str(number)),
            "session-ttl-ms": str(TTL_MS),
        }
        self._running[number] = Child(flags, {"replica.lag.time.max.ms": "5000"})
        self._running[number].start()

    def kill(self, number: int) -> None:
        child = self._running.pop(number)
        child.kill()
        child.stop()

    def create(self, topic: str, replicas: int, partitions: int = 1) -> None:
        config = {"min.insync.replicas": str(min(replicas, 2))}
        self.admin.create_topics([NewTopic(topic, partitions, replicas, config=config)])[topic].result(60)
        self.settle(topic, replicas)

    def leader(self, topic: str) -> int:
        return int(self.admin.list_topics(topic, timeout=30).topics[topic].partitions[0].leader)

    def settle(self, topic: str, replicas: int) -> None:
        end = time.monotonic() + 300
        while True:
            parts = self.admin.list_topics(topic, timeout=30).topics[topic].partitions.values()
            if all(part.leader > 0 and len(part.isrs) == replicas for part in parts):
                return
            if time.monotonic() > end:
                raise SystemExit(f"{topic} is not in sync")
            time.sleep(0.05)

    def cpu_s(self) -> float:
        """The processor time that all brokers have used."""
        ticks = os.sysconf("SC_CLK_TCK")
        used = 0
        for child in self._running.values():
            fields = Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()
            used += int(fields[11]) + int(fields[12])
        return used / ticks

    def lags(self, leader: int) -> dict[int, Lag]:
        """The lag of a broker's followers, as the broker reports it."""
        resource = ConfigResource(ResourceType.BROKER, str(leader))
        described = self.admin.describe_configs([resource])[resource].result(30)
        return decode_lags(described["tidemill.replica.lag"].value or "")

    def stop(self) -> None:
        for child in self._running.values():
            child.kill()
            child.stop()


def producer(cluster: Cluster, acks: str, **more: object) -> Producer:
    return Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "acks": acks,
            "linger.ms": 5,
            "batch.size": 200_000,
            "queue.buffering.max.messages": 1_000_000,
            "message.timeout.ms": 120_000,
            "log_level": 0,
            **more,
        }
    )


def produce_mb_s(cluster: Cluster, topic: str, megabytes: int, partitions: int = 1) -> float:
    client = producer(cluster, "all")
    began = time.perf_counter()
    for number in range(megabytes * 1000):
        while True:
            try:
                client.produce(topic, VALUE, partition=number % partitions)
                break
            except BufferError:
                client.poll(0.05)
        if number % 1000 == 0:
            client.poll(0)
    left = client.flush(300)
    if left:
        raise SystemExit(f"{left} records were not acknowledged")
    return megabytes * len(VALUE) / 1000 / (time.perf_counter() - began)


def latencies_ms(cluster: Cluster, topic: str, acks: str, seconds: float, rate: float) -> list[float]:
    client = producer(cluster, acks, **{"linger.ms": 0})
    found: list[float] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        sent = time.perf_counter()
        client.produce(
            topic,
            VALUE,
            partition=0,
            on_delivery=lambda *_, sent=sent: found.append((time.perf_counter() - sent) * 1e3),
        )
        client.poll(1 / rate)
    client.flush(30)
    return sorted(found)


def lags_under_load(cluster: Cluster, topic: str, seconds: float, rate: float) -> list[Lag]:
    """The lag of the worst follower of the topic, sampled while records are produced at a steady rate."""
    client, leader = producer(cluster, "all"), cluster.leader(topic)
    over = threading.Event()

    def send() -> None:
        began, sent = time.perf_counter(), 0
        while not over.is_set():
            while sent < (time.perf_counter() - began) * rate:
                client.produce(topic, VALUE, partition=0)
                sent += 1
            client.poll(0.002)
        client.flush(60)

    sender = threading.Thread(target=send)
    sender.start()
    time.sleep(1.0)
    found = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found.append(max(cluster.lags(leader).values(), key=lambda lag: lag.ms))
        time.sleep(0.02)
    over.set()
    sender.join()
    return found


def failovers_s(cluster: Cluster, topic: str, times: int) -> list[float]:
    """The longest wait for an acknowledgement after each kill -9 of the leader."""
    client = producer(cluster, "all", **{"enable.idempotence": True, "linger.ms": 0, "reconnect.backoff.max.ms": 500})
    moments: list[float] = []

    def send_for(seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            client.produce(topic, VALUE, partition=0, on_delivery=lambda *_: moments.append(time.monotonic()))
            client.poll(0.02)

    found = []
    for _ in range(times):
        send_for(1.0)
        victim = cluster.leader(topic)
        began = time.monotonic()
        cluster.kill(victim)
        send_for(8.0)
        client.flush(60)
        after = [began, *(at for at in moments if at >= began)]
        found.append(max(b - a for a, b in pairwise(after)))
        cluster.start(victim)
        cluster.settle(topic, 3)
    return found


def catch_up_mb_s(cluster: Cluster, topic: str, megabytes: int) -> float:
    """Catch-up rate of a follower that was stopped while this much was written, from ready line to in sync."""
    away = next(number for number in BROKERS if number != cluster.leader(topic))
    cluster.kill(away)
    produce_mb_s(cluster, topic, megabytes)
    cluster.start(away)
    began = time.perf_counter()
    cluster.settle(topic, 3)
    return megabytes * len(VALUE) / 1000 / (time.perf_counter() - began)


def report(cluster: Cluster, megabytes: int, rounds: int, kills: int) -> None:
    for partitions in (1, 3):
        for replicas in (1, 3):
            cluster.create(f"r{replicas}p{partitions}", replicas, partitions)
    for partitions in (1, 3):
        one, three, cpu = [], [], [cluster.cpu_s()]
        for _ in range(rounds):
            one.append(produce_mb_s(cluster, f"r1p{partitions}", megabytes, partitions))
            cpu.append(cluster.cpu_s())
            three.append(produce_mb_s(cluster, f"r3p{partitions}", megabytes, partitions))
            cpu.append(cluster.cpu_s())
        spent = [(after - before) / megabytes / len(VALUE) * 1e6 for before, after in pairwise(cpu)]
        print(
            f"produce acks=all, {partitions} partition(s): 1 replica {median(one):.0f} MB/s, 3 replicas "
            f"{median(three):.0f} MB/s, ratio {median(three) / median(one):.2f}; processor time of all brokers "
            f"{median(spent[::2]):.1f} and {median(spent[1::2]):.1f} s per GB",
            flush=True,
        )
    lags = lags_under_load(cluster, "r3p1", 5.0, LOAD)
    records, times = (sorted(column) for column in zip(*lags, strict=True))
    print(
        f"replication lag at {LOAD:,.0f} records/s, acks=all, worst follower of {len(lags)} looks: "
        f"p50 {median(records):.0f}, p99 {records[int(len(records) * 0.99)]:.0f}, max {records[-1]:.0f} records; "
        f"p50 {median(times):.0f}, p99 {times[int(len(times) * 0.99)]:.0f}, max {times[-1]:.0f} ms",
        flush=True,
    )
    for topic, acks in (("r1p1", "all"), ("r3p1", "1"), ("r3p1", "all")):
        found = latencies_ms(cluster, topic, acks, 5.0, 500.0)
        print(
            f"latency at 500 records/s, {topic[1]} replica(s), acks={acks}: p50 {median(found):.1f} ms, "
            f"p99 {found[int(len(found) * 0.99)]:.1f} ms",
            flush=True,
        )
    print(f"catch-up after an absence: {catch_up_mb_s(cluster, 'r3p1', megabytes * 2):.0f} MB/s", flush=True)
    found = failovers_s(cluster, "r3p1", kills)
    print(
        f"failover after kill -9 of the leader, session {TTL_MS / 1000:g} s: p50 {median(found):.1f} s, "
        f"max {max(found):.1f} s of {len(found)}",
        flush=True,
    )


@contextlib.contextmanager
def running_etcd(home: Path) -> Iterator[str]:
    program = shutil.which("etcd")
    if program is None:
        raise SystemExit("etcd is not installed: apt-get install etcd-server")
    client, peer = _free_port(), _free_port()
    urls = {"listen-client": client, "advertise-client": client, "listen-peer": peer, "initial-advertise-peer": peer}
    flags = [f"--{name}-urls=http://127.0.0.1:{port}" for name, port in urls.items()]
    flags += [f"--data-dir={home / 'etcd'}", "--name=one", f"--initial-cluster=one=http://127.0.0.1:{peer}"]
    quiet = subprocess.DEVNULL
    process = subprocess.Popen([program, *flags], stdin=quiet, stdout=quiet, stderr=quiet)
    try:
        for _ in range(200):
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"http://127.0.0.1:{client}/health", timeout=1)
                break
            time.sleep(0.05)
        yield f"etcd://127.0.0.1:{client}"
    finally:
        process.kill()
        process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--mb", type=int, default=60)
    options = parser.parse_args()
    machine.head("replication")
    home = Path(tempfile.mkdtemp(prefix="tidemill-bench-"))
    try:
        with running_etcd(home) as etcd:
            cluster = Cluster(home, etcd)
            try:
                report(cluster, options.mb, rounds=5 if options.full else 3, kills=7 if options.full else 3)
            finally:
                cluster.stop()
    finally:
        shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    main()
