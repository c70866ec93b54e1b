"""Brokers to measure: Tidemill, Apache Kafka (from Maven, if available), and the limit: a socket that writes a file."""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import psutil

KAFKA_VERSION = "4.1.0"
START_S = 90
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "tidemill-benchmarks"


class Peer(NamedTuple):
    """A running broker: its address and its process."""

    name: str
    address: str
    process: psutil.Process

    def cpu_s(self) -> float:
        """Seconds of processor time used so far."""
        times = self.process.cpu_times()
        return float(times.user + times.system)

    def resident_mb(self) -> float:
        """Current memory."""
        return float(self.process.memory_info().rss) / 1e6


def free_port() -> int:
    """A free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def tidemill(*flags: str, source: str | None = None) -> Iterator[Peer]:
    """`tidemill serve` in a separate process, in an empty folder; from another source tree if one is given."""
    with tempfile.TemporaryDirectory(prefix="tidemill-bench-") as folder:
        command = [sys.executable, "-m", "tidemill", "serve", "--data-dir", folder, "--kafka", "127.0.0.1:0"]
        command += ["--http", "none", "--grpc", "none", "--log-level", "error", *flags]
        variables = {**os.environ, **({"PYTHONPATH": source} if source else {})}
        child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=variables)
        try:
            assert child.stdout is not None
            ready = child.stdout.readline()
            address = next(part.removeprefix("kafka=") for part in ready.split() if part.startswith("kafka="))
            yield Peer("tidemill", address, psutil.Process(child.pid))
        finally:
            child.terminate()
            child.wait(30)


@contextmanager
def kafka() -> Iterator[Peer | None]:
    """Apache Kafka in KRaft mode, one broker, same disk; None when Java or Maven cannot provide it."""
    jars = _kafka_jars()
    if jars is None:
        print("Apache Kafka: skipped (needs java and mvn, and Maven's registry)")
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="kafka-bench-") as folder:
        port, controller = free_port(), free_port()
        config = Path(folder, "server.properties")
        config.write_text(_kafka_properties(folder, port, controller))
        java = ["java", "-Xmx1g", "-Xms1g", "-cp", f"{jars}/*", "-Dlog4j2.level=ERROR"]
        subprocess.run(
            [*java, "kafka.tools.StorageTool", "format", "-t", "MkU3OEVBNTcwNTJENDM2Qk", "-c", str(config)],
            check=True,
            capture_output=True,
        )
        with Path(folder, "out").open("wb") as out:
            child = subprocess.Popen([*java, "kafka.Kafka", str(config)], stdout=out, stderr=out)
        try:
            _wait_for(port, child)
            yield Peer("kafka", f"127.0.0.1:{port}", psutil.Process(child.pid))
        finally:
            child.kill()
            child.wait(30)


def _kafka_properties(folder: str, port: int, controller: int) -> str:
    settings = {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": f"{folder}/data",
        "offsets.topic.replication.factor": 1,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "group.initial.rebalance.delay.ms": 0,
    }
    return "".join(f"{name}={value}\n" for name, value in settings.items())


def _kafka_jars() -> Path | None:
    jars = CACHE / f"kafka-{KAFKA_VERSION}"
    if jars.exists():
        return jars
    if not shutil.which("mvn") or not shutil.which("java"):
        return None
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "pom.xml").write_text(_pom())
        command = ["mvn", "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={folder}/jars"]
        if subprocess.run(command, cwd=folder, capture_output=True, check=False).returncode:
            return None
        jars.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(f"{folder}/jars", jars)
    return jars


def _pom() -> str:
    return f"""<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>bench</groupId><artifactId>peer</artifactId><version>1</version><dependencies><dependency>
<groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{KAFKA_VERSION}</version>
</dependency></dependencies></project>"""


def _wait_for(port: int, child: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        if child.poll() is not None:
            raise RuntimeError(f"the peer ended with exit code {child.returncode}")
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.2)
    raise RuntimeError("the peer did not start")


_SINK = """
import os, socket, sys
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
connection, _ = server.accept()
with open(sys.argv[1], "wb", buffering=0) as out:
    buffer = memoryview(bytearray(1 << 18))
    while count := connection.recv_into(buffer):
        out.write(buffer[:count])
    os.fdatasync(out.fileno())
connection.sendall(b"x")
"""


def sink_rate(payload: bytes, total_bytes: int) -> tuple[float, float]:
    """The limit: MB/s and processor seconds per GB of a socket whose bytes go to a file, flushed once at the end."""
    with tempfile.TemporaryDirectory(prefix="sink-bench-") as folder:
        child = subprocess.Popen([sys.executable, "-c", _SINK, f"{folder}/out"], stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        port = int(child.stdout.readline())
        process = psutil.Process(child.pid)
        with socket.create_connection(("127.0.0.1", port)) as connection:
            began, before = time.perf_counter(), process.cpu_times()
            for _ in range(total_bytes // len(payload)):
                connection.sendall(payload)
            times = process.cpu_times()
            used = times.user + times.system - before.user - before.system
            connection.shutdown(socket.SHUT_WR)
            connection.recv(1)
            took = time.perf_counter() - began
        child.wait(30)
    return total_bytes / took / 1e6, used / (total_bytes / 1e9)
