"""A cluster on one machine: etcd and brokers as child processes of one command, which stops them all.

The children are in their own process group, so that Ctrl-C reaches only this command. It stops the brokers first and
then etcd. All data and logs are in one directory.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import IO

from tidemill.cli.errors import CommandFailed
from tidemill.cli.output import remark, say
from tidemill.client.http import fetch
from tidemill.settings import PREFIX

READY_S = 60.0
STOP_S = 30.0
RESTART_S = 5.0
LOOK_S = 0.2
READY = "tidemill ready "
IN_USE = " is in use;"
"""The broker continues with advice for `tidemill serve`, which has other options than this command."""
PORTS = "ports.json"
DEFAULT_PORTS = {"kafka": 9092, "grpc": 6174, "http": 8080}


class Process:
    """A child process and its log file."""

    def __init__(self, name: str, command: list[str], log: Path, *, piped: bool = False) -> None:
        self.name = name
        self._command = command
        self._log = log
        self._piped = piped
        self.child: subprocess.Popen[str] | None = None
        self.ended_at: float | None = None

    def start(self) -> None:
        """Start the process. Its output is appended to the log file."""
        with self._log.open("ab") as log:
            self.child = subprocess.Popen(  # noqa: S603 -- tidemill or the installed etcd
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE if self._piped else log,
                stderr=log,
                env={name: value for name, value in os.environ.items() if not name.startswith(PREFIX)},
                start_new_session=True,
                text=True,
            )
        self.ended_at = None

    def ready_line(self) -> str:
        """Wait for the ready line and return it."""
        output: IO[str] | None = self.child.stdout if self.child is not None else None
        line = output.readline() if output is not None else ""
        if not line.startswith(READY):
            reason = self._last_line()
            address, in_use, _ = reason.removeprefix("error: ").partition(IN_USE)
            if in_use:
                advice = "stop the program that uses it, or use free ports with --kafka-port 0"
                raise CommandFailed(f"{self.name} did not start: {address}{IN_USE} {advice}")
            raise CommandFailed(f"{self.name} did not become ready; see its log {self._log}: {reason}")
        return line.removeprefix(READY).strip()

    def running(self) -> bool:
        """Whether the process is running."""
        return self.child is not None and self.child.poll() is None

    def stop(self) -> None:
        """Stop the process cleanly, or kill it after a timeout."""
        if self.child is None or not self.running():
            return
        self.child.send_signal(signal.SIGTERM)
        try:
            self.child.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait()

    def _last_line(self) -> str:
        lines = self._log.read_text(errors="replace").splitlines()
        return lines[-1][:300] if lines else "the log is empty"


def run(brokers: int, data_dir: Path, kafka_port: int, session_ttl_ms: int, timelines: str) -> None:
    """Start everything, restart brokers that end, and stop everything at a signal."""
    program = shutil.which("etcd")
    if program is None:
        raise CommandFailed("etcd is not installed; install it, on Debian with: apt-get install etcd-server")
    data_dir.mkdir(parents=True, exist_ok=True)
    ports = _ports(data_dir)
    etcd = _etcd(program, data_dir, ports)
    flags = {"session-ttl-ms": str(session_ttl_ms), "timelines": timelines}
    nodes = [_broker(number, data_dir, ports["client"], kafka_port, flags) for number in range(1, brokers + 1)]
    stopping = _on_signal()
    try:
        etcd.start()
        _wait_for_etcd(etcd, ports["client"])
        for node in nodes:
            node.start()
        addresses = [_addresses(node.ready_line()) for node in nodes]
        _print_addresses(addresses, nodes, data_dir)
        _watch(nodes, stopping)
    finally:
        remark("stopping")
        for node in nodes:
            node.stop()
        etcd.stop()


def _etcd(program: str, data_dir: Path, ports: dict[str, int]) -> Process:
    client, peer = (f"http://127.0.0.1:{ports[kind]}" for kind in ("client", "peer"))
    options = {
        "name": "etcd",
        "data-dir": str(data_dir / "etcd"),
        "listen-client-urls": client,
        "advertise-client-urls": client,
        "listen-peer-urls": peer,
        "initial-advertise-peer-urls": peer,
        "initial-cluster": f"etcd={peer}",
        "auto-compaction-retention": "1h",
    }
    command = [program, *(f"--{name}={value}" for name, value in options.items())]
    return Process("etcd", command, data_dir / "etcd.log")


def _broker(number: int, data_dir: Path, etcd: int, kafka_port: int, more: Mapping[str, str]) -> Process:
    listeners = {name: f"127.0.0.1:{_port(name, number, kafka_port)}" for name in DEFAULT_PORTS}
    flags = {
        "node-id": str(number),
        "data-dir": str((data_dir / f"broker-{number}").absolute()),
        "coordination": f"etcd://127.0.0.1:{etcd}",
        **more,
        **listeners,
    }
    command = [sys.executable, "-P", "-m", "tidemill", "serve"]
    for name, value in flags.items():
        command += [f"--{name}", value]
    return Process(f"broker {number}", command, data_dir / f"broker-{number}.log", piped=True)


def _port(name: str, number: int, kafka_port: int) -> int:
    """The first broker has the default ports, the others the following ones. 0 picks a free port for every server."""
    if kafka_port == 0:
        return 0
    return (kafka_port if name == "kafka" else DEFAULT_PORTS[name]) + number - 1


def _ports(data_dir: Path) -> dict[str, int]:
    """The ports of etcd: free ones in the first run, then the same, because its members know each other by them."""
    path = data_dir / PORTS
    if path.exists():
        return dict(json.loads(path.read_text()))
    ports = {"client": _free_port(), "peer": _free_port()}
    path.write_text(json.dumps(ports) + "\n")
    return ports


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_for_etcd(etcd: Process, port: int) -> None:
    end = time.monotonic() + READY_S
    while time.monotonic() < end and etcd.running():
        with suppress(OSError):
            if b'"true"' in fetch(f"http://127.0.0.1:{port}/health", timeout_s=1):
                return
        time.sleep(LOOK_S / 4)
    raise CommandFailed(f"etcd did not become ready on port {port}; see etcd.log in the cluster's directory")


def _addresses(ready: str) -> dict[str, str]:
    return dict(part.split("=", 1) for part in ready.split())


def _print_addresses(addresses: list[dict[str, str]], nodes: list[Process], data_dir: Path) -> None:
    bootstrap = ",".join(each["kafka"] for each in addresses)
    say(f"tidemill cluster ready kafka={bootstrap}")
    sys.stdout.flush()
    for node, each in zip(nodes, addresses, strict=True):
        pid = node.child.pid if node.child is not None else 0
        console = each["http"] if "://" in each["http"] else f"http://{each['http']}"
        remark(f"  {node.name}   kafka {each['kafka']}  grpc {each['grpc']}  console {console}/  pid {pid}")
    where = "" if addresses[0]["kafka"] == "127.0.0.1:9092" else f" --bootstrap {addresses[0]['kafka']}"
    remark(f"  data and logs are in {data_dir}")
    remark(f"  try        tidemill topic create orders --partitions 6 --replication-factor {min(3, len(nodes))}{where}")
    remark(f"             tidemill cluster status{where}")
    remark("  stop       Ctrl-C")


def _on_signal() -> Callable[[], bool]:
    asked: list[int] = []

    def note(number: int, _: FrameType | None) -> None:
        asked.append(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, note)
    return lambda: bool(asked)


def _watch(nodes: list[Process], stopping: Callable[[], bool]) -> None:
    """Restart brokers that end, with a delay, until a signal stops the command."""
    while not stopping():
        now = time.monotonic()
        for node in nodes:
            if node.running():
                continue
            if node.ended_at is None:
                node.ended_at = now
                remark(f"{node.name} has ended; restarting it in {RESTART_S:g} s")
            elif now - node.ended_at >= RESTART_S:
                node.start()
                remark(f"{node.name} restarted: {node.ready_line()}")
        time.sleep(LOOK_S)
