"""A broker process under attack, an honest client, and the limits that both must meet.

    with attacked_broker({"message.max.bytes": "1000000"}) as broker:
        with broker.watched():
            ...  # the attack, over broker.address

`watched` first measures the honest client without an attack, then runs the attack. At its end it asserts that the
client's 99th percentile and the broker's memory stayed within their limits. The latency limit is HONEST_P99_MS_MAX. If
the machine is so busy that the client is slow even without an attack, it is SLOW_FACTOR times that latency.
"""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import psutil
from tests.hostile.frames import Peer

from tidemill.testing import Broker

HONEST_P99_MS_MAX = 250.0
SLOW_FACTOR = 3.0
BROKER_RSS_BYTES_MAX = 300 * 1024 * 1024
SAMPLE_INTERVAL_S = 0.02
BASELINE_SAMPLES = 60
ATTACK_SAMPLES_MIN = 150
"""With fewer samples, the 99th percentile is the maximum. The client continues alone until it has as many."""
WAIT_S = 120.0
ROOT = Path(__file__).parents[2]
TOPIC = "honest"


class Latency(NamedTuple):
    """The duration of one request of the honest client."""

    api: str
    ms: float


def p99(latencies: Sequence[Latency]) -> float:
    """The 99th percentile in milliseconds."""
    ordered = sorted(each.ms for each in latencies)
    return ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]


class HonestLogin(NamedTuple):
    """How the honest client logs in: the CA of the broker, the user, the mechanism and the password."""

    authority: str
    name: str
    mechanism: str
    password: str


class HonestClient:
    """The process of the honest client, and its measurements."""

    def __init__(self, address: tuple[str, int], login: HonestLogin | None = None) -> None:
        host, port = address
        command = [sys.executable, "-m", "tests.hostile.honest_client", host, str(port), TOPIC]
        variables = dict(os.environ)
        if login is not None:
            command += login[:3]
            variables["HONEST_PASSWORD"] = login.password
        self._process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.latencies: list[Latency] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def wait_for(self, count: int) -> None:
        """Wait until the client has measured this many requests in total."""
        deadline = time.monotonic() + WAIT_S
        while len(self.latencies) < count:
            if self._process.poll() is not None:
                raise AssertionError(f"the honest client failed: {self._errors()}")
            assert time.monotonic() < deadline, f"the honest client got {len(self.latencies)} of {count} answers"
            time.sleep(SAMPLE_INTERVAL_S)

    def stop(self) -> None:
        """Stop the process. Raises its failure."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            code = self._process.wait(WAIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise AssertionError("the honest client got no answer to its last request") from None
        finally:
            self._reader.join(WAIT_S)
            errors = self._errors()
        assert code == 0, f"the honest client failed: {errors}"

    def _read(self) -> None:
        if self._process.stdout is None:
            return
        with self._process.stdout:
            for line in self._process.stdout:
                with suppress(ValueError):  # the end of the process may cut a line
                    self.latencies.append(Latency(**json.loads(line)))

    def _errors(self) -> str:
        if self._process.stderr is None or self._process.stderr.closed:
            return ""
        with self._process.stderr:
            return self._process.stderr.read()


class Memory:
    """Samples the largest resident size of a process."""

    def __init__(self, pid: int) -> None:
        self._process = psutil.Process(pid)
        self.first_bytes = self.peak_bytes = self.now_bytes
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop sampling."""
        self._ended.set()
        self._thread.join()

    @property
    def now_bytes(self) -> int:
        """The resident size now."""
        return int(self._process.memory_info().rss)

    def _sample(self) -> None:
        while not self._ended.wait(SAMPLE_INTERVAL_S):
            with suppress(psutil.NoSuchProcess):
                self.peak_bytes = max(self.peak_bytes, self.now_bytes)


class AttackedBroker:
    """A running broker, with what an attack needs."""

    def __init__(self, broker: Broker) -> None:
        host, port = broker.bootstrap_servers.split(":")
        self.address = (host, int(port))
        self.process = broker_process(self.address)
        with Peer(self.address) as peer:
            self.create_topic(peer, TOPIC)

    @staticmethod
    def create_topic(peer: Peer, name: str, partitions: int = 1, **configs: str) -> None:
        """Create a topic. Underscores in setting names stand for dots."""
        settings = [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()]
        topic = {"name": name, "num_partitions": partitions, "replication_factor": 1, "configs": settings}
        answer = peer.ask(19, 5, {"topics": [topic], "timeout": 30_000, "validate_only": False})
        assert not answer.topics[0].error_code, answer.topics[0]

    @contextmanager
    def watched(self, *, rss_bytes_max: int = BROKER_RSS_BYTES_MAX) -> Iterator[HonestClient]:
        """Run an attack and assert the limits of latency and memory."""
        with watched(self.address, self.process.pid, rss_bytes_max=rss_bytes_max) as client:
            yield client


@contextmanager
def watched(
    address: tuple[str, int], pid: int, login: HonestLogin | None = None, *, rss_bytes_max: int = BROKER_RSS_BYTES_MAX
) -> Iterator[HonestClient]:
    """Run an attack next to an honest client. Print and limit its latency and the memory of the broker.

    The client is measured before the attack, during the attack, and after it.
    """
    client = HonestClient(address, login)
    memory = Memory(pid)
    try:
        client.wait_for(BASELINE_SAMPLES)
        baseline = list(client.latencies[BASELINE_SAMPLES // 3 :])
        first = len(client.latencies)
        yield client
        client.wait_for(first + ATTACK_SAMPLES_MIN)
        last = len(client.latencies)
        client.wait_for(last + BASELINE_SAMPLES)
        after_bytes = memory.now_bytes
    finally:
        memory.stop()
        client.stop()
    attacked, after = client.latencies[first:last], client.latencies[last:]
    bound_ms = max(HONEST_P99_MS_MAX, SLOW_FACTOR * p99(baseline))
    slowest = max(attacked, key=lambda each: each.ms)
    print(
        f"honest p99: {p99(baseline):.0f} ms before, {p99(attacked):.0f} ms of {len(attacked)} requests during, "
        f"{p99(after):.0f} ms after (slowest {slowest}); memory of the broker: {memory.first_bytes >> 20} MiB before, "
        f"{memory.peak_bytes >> 20} MiB during, {after_bytes >> 20} MiB after"
    )
    assert p99(attacked) < bound_ms, f"p99 {p99(attacked):.0f} ms, without an attack {p99(baseline):.0f} ms"
    assert memory.peak_bytes < rss_bytes_max, f"the broker took {memory.peak_bytes >> 20} MiB"


def broker_process(address: tuple[str, int]) -> psutil.Process:
    """The child process that listens at an address."""
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            for each in child.net_connections("tcp"):
                if each.status == psutil.CONN_LISTEN and each.laddr[1] == address[1]:
                    return child
    raise AssertionError(f"no child of this process listens at {address}")


@contextmanager
def attacked_broker(
    settings: Mapping[str, str] | None = None, flags: Mapping[str, str] | None = None
) -> Iterator[AttackedBroker]:
    """Start a broker process, with only the Kafka listener unless `flags` say otherwise."""
    with Broker(
        settings={"auto.create.topics.enable": "false", **(settings or {})},
        flags={"grpc": "none", "http": "none", **(flags or {})},
        process=True,
    ) as broker:
        yield AttackedBroker(broker)
