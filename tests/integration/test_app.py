"""`tidemill serve` as a process: its ready line, its signals, its lock, and what a crash leaves."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import confluent_kafka
import pytest
from tests.support.addresses import speaks_ipv6

from tidemill import Message, Timeline
from tidemill.testing import Broker

WAIT_S = 60
CLEAN = "clean-shutdown"
SERVERS = ("--kafka", "127.0.0.1:0", "--grpc", "none", "--http", "none")


def serve(*arguments: str, cwd: Path, environment: dict[str, str] | None = None) -> subprocess.Popen[str]:
    surroundings = {name: value for name, value in os.environ.items() if not name.startswith("TIDEMILL_")}
    return subprocess.Popen(
        [sys.executable, "-m", "tidemill", "serve", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**surroundings, **(environment or {})},
        cwd=cwd,
        text=True,
    )


@contextmanager
def serving(
    *arguments: str, cwd: Path, environment: dict[str, str] | None = None
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    process = serve(*arguments, cwd=cwd, environment=environment)
    try:
        assert process.stdout is not None
        yield process, process.stdout.readline()
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate(timeout=WAIT_S)


def end_of(process: subprocess.Popen[str]) -> tuple[int, str]:
    _, errors = process.communicate(timeout=WAIT_S)
    return process.returncode, errors


def topics_of(bootstrap_servers: str) -> list[str]:
    from confluent_kafka.admin import AdminClient

    return sorted(AdminClient({"bootstrap.servers": bootstrap_servers}).list_topics(timeout=WAIT_S).topics)


def create_topic(bootstrap_servers: str, name: str) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    admin.create_topics([NewTopic(name, 2)])[name].result(WAIT_S)


def test_the_ready_line_names_the_real_addresses(tmp_path: Path) -> None:
    host, written = ("::1", "[::1]") if speaks_ipv6() else ("127.0.0.1", "127.0.0.1")
    with serving("--kafka", "127.0.0.1:0", "--grpc", "none", "--http", f"{written}:0", cwd=tmp_path) as (_, line):
        pattern = rf"tidemill ready kafka=127\.0\.0\.1:(\d+) grpc=none http={re.escape(written)}:(\d+)\n"
        found = re.fullmatch(pattern, line)
        assert found, line
        for listening in (("127.0.0.1", int(found[1])), (host, int(found[2]))):
            socket.create_connection(listening, timeout=WAIT_S).close()
    assert (tmp_path / "data" / "coordination.journal").exists()


def test_the_default_data_directory_takes_topics_and_records(tmp_path: Path) -> None:
    from confluent_kafka import Producer

    with serving(*SERVERS, cwd=tmp_path) as (_, line):
        address = line.split("kafka=")[1].split()[0]
        create_topic(address, "orders")
        producer = Producer({"bootstrap.servers": address})
        producer.produce("orders", b"first", partition=0)
        assert producer.flush(WAIT_S) == 0
    [log] = (tmp_path / "data" / "streams").glob("*/0/*.log")
    assert b"first" in log.read_bytes()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_in_order(tmp_path: Path, number: signal.Signals) -> None:
    with serving(*SERVERS, cwd=tmp_path) as (process, line):
        assert line.startswith("tidemill ready")
        process.send_signal(number)
        code, errors = end_of(process)
        assert code == 0, errors
    assert (tmp_path / "data" / CLEAN).exists()
    events = [json.loads(row)["event"] for row in errors.splitlines()]
    assert events == ["started", "stopping", "stopped"]


def test_a_second_broker_names_the_process_that_has_the_data(tmp_path: Path) -> None:
    with serving(*SERVERS, cwd=tmp_path) as (first, line):
        assert line.startswith("tidemill ready")
        code, errors = end_of(serve(*SERVERS, cwd=tmp_path))
        assert code == 1
        assert errors.splitlines()[-1].startswith("error: data directory data is in use")
        assert f"process id {first.pid};" in errors
        assert first.poll() is None


def test_a_taken_port_is_reported(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        for server in ("kafka", "grpc", "http"):
            code, errors = end_of(serve(*SERVERS, f"--{server}", address, "--data-dir", str(tmp_path), cwd=tmp_path))
            assert (code, errors) == (
                1,
                f"error: {server} address {address} is in use; choose another with --{server} host:port\n",
            )


@pytest.mark.parametrize("server", ["kafka", "grpc", "http"])
def test_an_address_of_another_machine_is_reported(tmp_path: Path, server: str) -> None:
    flags = (f"--{server}", "nowhere.invalid:1", "--set", "allow.anonymous=true")
    code, errors = end_of(serve(*SERVERS, *flags, cwd=tmp_path))
    assert (code, errors.splitlines()[-1].partition(": ")[2].partition(": ")[0]) == (
        1,
        f"{server} address nowhere.invalid:1 cannot be opened",
    )


def test_wrong_use_gives_an_error_of_one_line(tmp_path: Path) -> None:
    for arguments in (
        ["--kafka", "nowhere"],
        ["--set", "num.partitions"],
        ["--set", "num.partition=1"],
        ["--node-id", "x"],
    ):
        code, errors = end_of(serve(*arguments, cwd=tmp_path))
        assert code == 2
        assert errors.startswith("error: ")
        assert errors.count("\n") == 1
    assert not (tmp_path / "data").exists()


def test_flags_environment_and_file_reach_the_broker(tmp_path: Path) -> None:
    (tmp_path / "tidemill.toml").write_text(
        'data-dir = "from-file"\ngrpc = "none"\nhttp = "none"\n[broker]\nnum.partitions = 3\n'
    )
    environment = {"TIDEMILL_KAFKA": "127.0.0.1:0"}
    with serving(cwd=tmp_path, environment=environment) as (process, line):
        assert "grpc=none http=none" in line
        process.send_signal(signal.SIGTERM)
        assert end_of(process)[0] == 0
    assert (tmp_path / "from-file" / CLEAN).exists()


def test_a_data_directory_that_cannot_be_made_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    code, errors = end_of(serve(*SERVERS, "--data-dir", str(tmp_path / "file" / "data"), cwd=tmp_path))
    assert code == 1
    assert "cannot be used" in errors


def test_topics_survive_kill_and_restart() -> None:
    with Broker(process=True) as broker:
        create_topic(broker.bootstrap_servers, "orders")
        address = broker.bootstrap_servers
        broker.kill()
        assert not (broker.data_dir / CLEAN).exists()
        broker.restart()
        assert broker.bootstrap_servers == address
        assert topics_of(address) == ["orders"]
        broker.restart()
        assert topics_of(address) == ["orders"]


def test_clients_get_the_advertised_address() -> None:
    from confluent_kafka.admin import AdminClient

    with Broker(process=True, flags={"advertise": "localhost:0"}) as broker:
        metadata = AdminClient({"bootstrap.servers": broker.bootstrap_servers}).list_topics(timeout=WAIT_S)
        assert [node.host for node in metadata.brokers.values()] == ["localhost"]
        assert [node.port for node in metadata.brokers.values()] == [int(broker.bootstrap_servers.rsplit(":")[-1])]


def test_a_copy_of_the_data_directory_is_a_backup(tmp_path: Path) -> None:
    """Records, committed offsets and timelines, as they were when the broker was stopped."""
    data, copy = tmp_path / "data", tmp_path / "copy"
    with Broker(data_dir=data) as broker, Timeline(broker.grpc, "later") as timeline:
        produce(broker, "before")
        assert consumed(broker) == [b"before"]
        timeline.create()
        timeline.schedule([Message(b"kept", time.time() + 3_600, id="kept")])
        broker.stop()
        shutil.copytree(data, copy)
        broker.start()
        produce(broker, "after")
    with Broker(data_dir=copy) as restored, Timeline(restored.grpc, "later") as timeline:
        assert [message.id for message in timeline.messages()] == ["kept"]
        produce(restored, "again")
        assert consumed(restored) == [b"again"]


def produce(broker: Broker, value: str) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers})
    producer.produce("orders", value)
    assert producer.flush(WAIT_S) == 0


def consumed(broker: Broker) -> list[bytes | None]:
    """The next record of a group, which commits it."""
    group = {"group.id": "mailer", "auto.offset.reset": "earliest"}
    consumer = confluent_kafka.Consumer({"bootstrap.servers": broker.bootstrap_servers, **group})
    consumer.subscribe(["orders"])
    found = [message.value() for message in consumer.consume(1, WAIT_S)]
    consumer.commit(asynchronous=False)
    consumer.close()
    return found
