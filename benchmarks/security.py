"""The cost of security: throughput with TLS, logins and ACLs as ratios to plain, logins per second, one ACL check.

    python -m benchmarks.security [--full] [--mb 200] [--rounds 5] [--way TLS] [--only throughput|logins|checks]

In the block "closed batches" one connection produces batches and fetches them again, five requests in flight, so that
the client costs little. In the block "librdkafka" it produces and consumes records of 1 KB, as an application does: it
also encrypts, and writes many small TLS records. All ways to connect are measured in turn in every round of one run: a busy machine slows all of them. Ratios
are medians of the ratios of the rounds. The processor time is that of the broker alone.
"""

import argparse
import random
import socket
import ssl
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
import timeit
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

import psutil

from benchmarks import machine
from benchmarks.throughput import Case, consume, create, produce
from tidemill.client.kafka import sasl
from tidemill.client.kafka.client import KafkaClient
from tidemill.client.kafka.connection import BlockingConnection
from tidemill.client.kafka.fetch import FetchPosition, fetch_request, fetched
from tidemill.client.kafka.options import Credentials, parse_options
from tidemill.client.kafka.produce import produce_request, produced
from tidemill.client.kafka.protocol import Answer, Request
from tidemill.model.errors import KafkaError
from tidemill.model.topics import TopicPartition
from tidemill.records.build import NewRecord, build_batch
from tidemill.security.authorizer import Authorizer
from tidemill.security.core.acl_table import AclTable
from tidemill.security.core.acls import AclBinding
from tidemill.security.core.principal import Principal, user
from tidemill.security.core.resources import Operation, PatternType, Permission, ResourceType
from tidemill.testing import Broker

SIZES = {"100 B": 100, "16 KB": 16 * 1024, "1 MB": 1_000_000}
CASES = {"16 KB": Case(1024, 16_384, "1", 1), "1 MB": Case(1024, 1_000_000, "1", 1)}
REQUESTS_MAX = 10_000
"""Requests of one measurement; small batches do not add up to the asked payload."""
IN_FLIGHT = 5
BATCH_OVERHEAD = 70
"""Bytes of a batch with one record that are not its value."""
USER, PASSWORD = "admin", "bench-password"
THREADS = 4
LOGIN_S = 3.0
UNCACHED_USERS = 300
CHECKS = 200_000


class Way(NamedTuple):
    """One way to connect: its broker, its listener, and what a client is configured with."""

    name: str
    address: str
    login: dict[str, str]
    process: psutil.Process

    def cpu_s(self) -> float:
        """Seconds of processor time that the broker has used."""
        return broker_cpu_s(self.process)


class Figure(NamedTuple):
    """The results of one round: requests per second, and microseconds of the broker's processor for each."""

    produced: float
    produce_us: float
    fetched: float
    fetch_us: float


def broker_cpu_s(process: psutil.Process) -> float:
    """Seconds of processor time of all threads, to the nanosecond: the usual counter has steps of 10 ms."""
    threads = Path("/proc", str(process.pid), "task").iterdir()
    return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e9


class Certificates(NamedTuple):
    """Files of a CA, a broker and a client."""

    authority: Path
    broker: Path
    client: Path


def certificates(folder: Path) -> Certificates:
    """Made with `tidemill cert create`: keys on the curve P-256."""
    for words in (["broker"], ["--client", USER]):
        command = [sys.executable, "-m", "tidemill", "cert", "create", *words, "--dir", str(folder)]
        subprocess.run(command, check=True, capture_output=True)
    return Certificates(folder / "ca.pem", folder / "broker.pem", folder / f"{USER}.pem")


@contextmanager
def broker(files: Certificates, listeners: str, **settings: str) -> Iterator[tuple[Broker, psutil.Process]]:
    """A broker in a process of its own, with these listeners."""
    given = {
        "listeners": listeners,
        "ssl.keystore.location": str(files.broker),
        "ssl.truststore.location": str(files.authority),
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "listener.security.protocol.map": "MTLS:SSL,SSL:SSL",
        "listener.name.mtls.ssl.client.auth": "required",
        **{name.replace("_", "."): value for name, value in settings.items()},
    }
    flags = {"grpc": "none", "http": "none", "log-level": "error"}
    with Broker(process=True, settings=given, flags=flags, admin_password=PASSWORD) as running:
        yield running, psutil.Process(running._runner.pid)  # type: ignore[union-attr]


@contextmanager
def every_way(files: Certificates) -> Iterator[list[Way]]:
    """Two brokers: one checks no ACLs; the other one checks them for clients that are no super users."""
    tls = {"security.protocol": "ssl", "ssl.ca.location": str(files.authority)}
    scram = {"sasl.mechanism": "SCRAM-SHA-256", "sasl.username": USER, "sasl.password": PASSWORD}
    both = {**tls, **scram, "security.protocol": "sasl_ssl"}
    plain_map = "listener_security_protocol_map"
    maps = "PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT,SSL:SSL,BOTH:SASL_SSL"
    with (
        broker(
            files,
            "PLAINTEXT://127.0.0.1:0,SASL://127.0.0.1:0,SSL://127.0.0.1:0",
            authorizer="none",
            **{plain_map: maps},
        ) as (without, first),
        broker(files, "PLAINTEXT://127.0.0.1:0,BOTH://127.0.0.1:0", authorizer="acl", **{plain_map: maps}) as (
            guarded,
            second,
        ),
    ):
        allow(guarded.listener("BOTH"), both)
        yield [
            Way("plain", without.listener("PLAINTEXT"), {}, first),
            Way("SASL", without.listener("SASL"), {**scram, "security.protocol": "sasl_plaintext"}, first),
            Way("ACLs", guarded.listener("PLAINTEXT"), {}, second),
            Way("TLS", without.listener("SSL"), tls, first),
            Way("all three", guarded.listener("BOTH"), both, second),
        ]


def allow(address: str, login: Mapping[str, str]) -> None:
    """Give clients without a login ACLs for all topics and groups, among ACLs of others, 1,000 in all."""
    from confluent_kafka import admin as kafka

    def rule(kind: object, name: str, principal: str) -> kafka.AclBinding:
        everywhere, operation = kafka.ResourcePatternType.LITERAL, kafka.AclOperation.ALL
        return kafka.AclBinding(kind, name, everywhere, principal, "*", operation, kafka.AclPermissionType.ALLOW)

    client = kafka.AdminClient({**login, "bootstrap.servers": address})
    rules = [rule(kind, "*", "User:ANONYMOUS") for kind in (kafka.ResourceType.TOPIC, kafka.ResourceType.GROUP)]
    rules += [rule(kafka.ResourceType.TOPIC, f"other-{index}", f"User:u{index}") for index in range(998)]
    for made in client.create_acls(rules).values():
        made.result(60)


def measure(way: Way, size: int, number: int, total_bytes: int) -> Figure:
    """Produce and fetch one topic of its own."""
    place = TopicPartition(f"t{size}-{way.name.replace(' ', '-')}-{number}", 0)
    count = min(REQUESTS_MAX, total_bytes // size)
    batch = build_batch([NewRecord(None, random.Random(size).randbytes(size - BATCH_OVERHEAD))])
    options = parse_options({"bootstrap.servers": way.address, **way.login})
    with KafkaClient(options) as client:
        client.metadata([place.topic], create=True)
        eventually_leads(client, place)
    connection = BlockingConnection(options.bootstrap[0], options)
    try:
        began = way.cpu_s()
        wrote_s = pipelined(connection, count, lambda _: to_produce(place, batch), produced)
        between = way.cpu_s()
        read_s = pipelined(connection, count, lambda index: to_fetch(place, index, size), read_one)
        return Figure(
            count / wrote_s, (between - began) / count * 1e6, count / read_s, (way.cpu_s() - between) / count * 1e6
        )
    finally:
        connection.close()


def eventually_leads(client: KafkaClient, place: TopicPartition) -> None:
    """Wait until the new topic can be written."""
    client.produce(place, build_batch([NewRecord(None, b"first")]), acks=1)


def to_produce(place: TopicPartition, batch: bytearray) -> Request:
    return produce_request({place: batch}, acks=1, timeout_ms=30_000, transactional_id=None)


def to_fetch(place: TopicPartition, index: int, size: int) -> Request:
    """One batch: the first one of the topic is not measured."""
    return fetch_request(place, FetchPosition(index + 1, size))


def read_one(answer: Answer) -> None:
    found = fetched(answer, FetchPosition(0))
    assert not isinstance(found, KafkaError), found
    assert len(found.records) > 0


def pipelined(
    connection: BlockingConnection, count: int, make: Callable[[int], Request], read: Callable[[Answer], object]
) -> float:
    """Send so many requests, and read their responses; the seconds."""
    waiting: deque[int] = deque()
    began = time.perf_counter()
    for index in range(count):
        if len(waiting) == IN_FLIGHT:
            read(connection.answer(waiting.popleft()))
        waiting.append(connection.ask(make(index)))
    while waiting:
        read(connection.answer(waiting.popleft()))
    return time.perf_counter() - began


def application(way: Way, case: Case, number: int, total_bytes: int) -> Figure:
    """Produce and consume records with librdkafka; figures for each batch."""
    topic = f"r{case.batch}-{way.name.replace(' ', '-')}-{number}"
    create(way.address, topic, case.partitions, way.login)
    count, batches = total_bytes // case.size, total_bytes / case.batch
    began = way.cpu_s()
    wrote_s = produce(way.address, topic, case, count, way.login)
    between = way.cpu_s()
    read_s = consume(way.address, topic, case.partitions, count, way.login)
    return Figure(
        batches / wrote_s, (between - began) / batches * 1e6, batches / read_s, (way.cpu_s() - between) / batches * 1e6
    )


def throughput(files: Certificates, total_bytes: int, rounds: int, chosen: list[str]) -> None:
    """Print one block for each load and size."""
    with every_way(files) as every:
        ways = [way for way in every if way.name == "plain" or way.name in (chosen or [each.name for each in every])]
        columns = f"{'MB/s':>8}{'of plain':>10}{'cpu us':>9}{'of plain':>10}"
        print(f"{'':<19}{'produce, each batch':<37}{'fetch, each batch':<37}")
        print(f"{'closed batches':<19}{columns}{columns}")
        for label, size in SIZES.items():
            compare(label, size, ways, rounds, partial(measure, size=size, total_bytes=total_bytes))
        print(f"{'librdkafka':<19}{columns}{columns}")
        for label, case in CASES.items():
            compare(label, case.batch, ways, rounds, partial(application, case=case, total_bytes=total_bytes))


def compare(label: str, size: int, ways: list[Way], rounds: int, measured: Callable[..., Figure]) -> None:
    """Measure every way in every round, in another order each time."""
    found: dict[str, list[Figure]] = {way.name: [] for way in ways}
    for number in range(rounds):
        for way in random.Random(number).sample(ways, len(ways)):
            found[way.name].append(measured(way, number=number))
    for name, figures in found.items():
        print(f"{label if name == 'plain' else '':<8}{name:<11}{summary(figures, found['plain'], size)}", flush=True)


def summary(figures: list[Figure], plain: list[Figure], size: int) -> str:
    """MB/s and the broker's processor time of a request, with their ratios to plain, of produce and of fetch."""
    medians = [statistics.median(column) for column in zip(*figures, strict=True)]
    ratios = [
        statistics.median(mine / other for mine, other in zip(*columns, strict=True))
        for columns in zip(zip(*figures, strict=True), zip(*plain, strict=True), strict=True)
    ]
    rate, cpu, fetch_rate, fetch_cpu = medians
    return "".join(
        f"{per_s * size / 1e6:>8.1f}{ratio:>9.2f}x{us:>9.0f}{cpu_ratio:>9.2f}x"
        for per_s, ratio, us, cpu_ratio in (
            (rate, ratios[0], cpu, ratios[1]),
            (fetch_rate, ratios[2], fetch_cpu, ratios[3]),
        )
    )


class LoginClient:
    """A blocking client that only logs in. It stretches the password each time: the rate of SCRAM is that of the client."""

    def __init__(self, address: str, context: ssl.SSLContext | None = None) -> None:
        self._address, self._context = address.rsplit(":", 1), context

    def handshake(self) -> None:
        """Connect with TLS, and use the connection once."""
        with self._connected() as connection:
            _ask(connection, 18, 0, b"")

    def log_in(self, mechanism: str, name: str = USER) -> None:
        """One login on a new connection."""
        with self._connected() as connection:
            _ask(connection, 17, 1, _text(mechanism))
            steps = sasl.exchange(Credentials(mechanism, name, PASSWORD), f"{random.getrandbits(96):x}")
            message = next(steps)
            while True:
                answer = _ask(connection, 36, 1, struct.pack(">i", len(message)) + message)
                error, said = struct.unpack_from(">hh", answer)
                assert not error, answer
                size = struct.unpack_from(">i", answer, 4 + max(said, 0))[0]
                try:
                    message = steps.send(answer[8 + max(said, 0) :][:size])
                except StopIteration:
                    return

    @contextmanager
    def _connected(self) -> Iterator[socket.socket]:
        host, port = self._address
        with socket.create_connection((host, int(port)), 30) as plain:
            if self._context is None:
                yield plain
            else:
                with self._context.wrap_socket(plain, server_hostname="localhost") as secured:
                    yield secured


def _text(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


def _ask(connection: socket.socket, key: int, version: int, body: bytes) -> bytes:
    request = struct.pack(">hhih", key, version, 1, -1) + body
    connection.sendall(struct.pack(">i", len(request)) + request)
    size = struct.unpack(">i", _read(connection, 4))[0]
    return _read(connection, size)[4:]


def _read(connection: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        more = connection.recv(size - len(found))
        assert more, "the broker has closed the connection"
        found += more
    return found


def logins(files: Certificates) -> None:
    """Print logins per second from some threads, and the processor time of the broker for each."""
    mutual = ssl.create_default_context(cafile=str(files.authority))
    one_way = ssl.create_default_context(cafile=str(files.authority))
    mutual.load_cert_chain(files.client)
    maps = {"listener_security_protocol_map": "SASL:SASL_PLAINTEXT,SSL:SSL,MTLS:SSL"}
    listeners = "SASL://127.0.0.1:0,SSL://127.0.0.1:0,MTLS://127.0.0.1:0"
    with broker(files, listeners, **maps) as (running, process):
        names = iter(add_users(running.listener("SASL")))
        client = LoginClient(running.listener("SASL"))
        once: dict[str, Callable[[], None]] = {
            "PLAIN, password cached": lambda: client.log_in("PLAIN"),
            "PLAIN, password not cached": lambda: client.log_in("PLAIN", next(names)),
            "SCRAM-SHA-256": lambda: client.log_in("SCRAM-SHA-256"),
            "SCRAM-SHA-512": lambda: client.log_in("SCRAM-SHA-512"),
            "TLS handshake": LoginClient(running.listener("SSL"), one_way).handshake,
            "mTLS handshake": LoginClient(running.listener("MTLS"), mutual).handshake,
        }
        for name, login in once.items():
            count, took_s, cpu_s = repeated(login, process)
            print(f"{name:<28}{count / took_s:>7.0f} logins/s{cpu_s / count * 1e3:>8.2f} ms of the broker's processor")


def add_users(address: str) -> list[str]:
    """Users with the same password, made with credentials that the client has stretched."""
    from confluent_kafka import admin as kafka

    settings = {"sasl.mechanism": "SCRAM-SHA-256", "sasl.username": USER, "sasl.password": PASSWORD}
    client = kafka.AdminClient({**settings, "bootstrap.servers": address, "security.protocol": "sasl_plaintext"})
    names = [f"user-{index}" for index in range(UNCACHED_USERS)]
    info = kafka.ScramCredentialInfo(kafka.ScramMechanism.SCRAM_SHA_256, 8192)
    wanted = [kafka.UserScramCredentialUpsertion(name, info, PASSWORD.encode(), b"salt" * 8) for name in names]
    for made in client.alter_user_scram_credentials(wanted).values():
        made.result(60)
    return names


def repeated(work: Callable[[], None], process: psutil.Process) -> tuple[int, float, float]:
    """How often the work was done by all threads, for how long, and the broker's processor time."""
    counts: list[int] = []
    end = time.perf_counter() + LOGIN_S

    def run() -> None:
        count = 0
        try:
            while time.perf_counter() < end:
                work()
                count += 1
        except StopIteration:
            pass
        counts.append(count)

    before, began = broker_cpu_s(process), time.perf_counter()
    threads = [threading.Thread(target=run) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts), time.perf_counter() - began, broker_cpu_s(process) - before


def checks() -> None:
    """Print the time of one authorization check: a decision from the cache, and one from the ACLs."""
    me, host = user("alice"), "127.0.0.1"
    for count in (10, 1_000, 10_000):
        authorizer = Authorizer(lambda _: False)
        mine = [_rule(me, f"orders-{index}", PatternType.PREFIXED) for index in range(5)]
        others = [_rule(user(f"u{index}"), f"topic-{index}", PatternType.LITERAL) for index in range(count - len(mine))]
        table = AclTable([*mine, *others])
        authorizer.set_table(table)
        asked = (me, host, Operation.WRITE, ResourceType.TOPIC)
        hit_us = _us(partial(authorizer.allows, *asked, "orders-1"))
        miss_us = _us(partial(table.decide, str(me), host, ResourceType.TOPIC, "orders-1"))
        refused_us = _us(partial(authorizer.allows, *asked, "topic-1"))
        print(
            f"{count:>6,} ACLs: cached {hit_us:.2f} us, refused {refused_us:.2f} us, not cached {miss_us:.2f} us",
            flush=True,
        )


def _rule(principal: Principal, name: str, pattern: PatternType) -> AclBinding:
    return AclBinding(ResourceType.TOPIC, name, pattern, str(principal), "*", Operation.WRITE, Permission.ALLOW)


def _us(work: Callable[[], object]) -> float:
    return min(timeit.repeat(work, number=CHECKS // 10, repeat=5)) / (CHECKS // 10) * 1e6


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--full", action="store_true", help="more data and more rounds")
    options.add_argument("--mb", type=int, default=200, help="payload of each measurement")
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--way", action="append", help="one of SASL, ACLs, TLS, 'all three'; repeatable", default=[])
    options.add_argument("--only", choices=("throughput", "logins", "checks"))
    chosen = options.parse_args()
    machine.head("security")
    scale = 3 if chosen.full else 1
    with tempfile.TemporaryDirectory(prefix="tidemill-bench-") as folder:
        files = certificates(Path(folder))
        if chosen.only in (None, "throughput"):
            throughput(files, chosen.mb * scale * 1_000_000, chosen.rounds, chosen.way)
        if chosen.only in (None, "logins"):
            logins(files)
    if chosen.only in (None, "checks"):
        checks()


if __name__ == "__main__":
    main()
