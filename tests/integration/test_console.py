"""The HTTP server: pages, documents, metrics, health, and an end in bounded time."""

import asyncio
import json
import os
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
from structlog.testing import capture_logs
from tests.support.broker_worlds import batch_of, running
from tests.support.metrics import samples, scraped
from tests.support.no_sql import NoSql
from tests.support.waiting import eventually

from tidemill.servers.http import server as server_module
from tidemill.servers.http.server import HttpServer
from tidemill.testing import Broker

WAIT_S = 30
MISSING = "does not exist; the console is at /, and /api/v1/openapi.json lists the API"
FACTS = {"version": "1", "node": "0", "place": "<script>alert(1)</script>"}


@asynccontextmanager
async def running_console(folder: Path) -> AsyncIterator[tuple[httpx.AsyncClient, HttpServer]]:
    async with running(folder, memory=True) as broker:
        await broker.topics.create("orders", partitions=2, overrides={"retention.ms": "5"})
        await broker.view.partition("orders", 0).leader.append(batch_of(b"a", b"b"), acks=1)
        server = HttpServer(broker, lambda: FACTS, NoSql())
        await server.start("127.0.0.1", 0)
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.address[1]}", timeout=WAIT_S) as client:
            yield client, server
        await server.close()


async def test_pages_and_documents(tmp_path: Path) -> None:
    async with running_console(tmp_path) as (client, _server):
        front = await client.get("/")
        assert front.status_code == 200
        assert "Needs attention" in front.text
        assert "default-src 'none'" in front.headers["content-security-policy"]
        topics = (await client.get("/api/topics")).json()["topics"]
        assert [(each["name"], each["partitions"], each["records"]) for each in topics] == [("orders", 2, 2)]
        status = (await client.get("/api/status")).json()
        assert status["partitions"] == 2
        assert status["runs"] == FACTS
        assert (await client.get("/health/live")).text == "live\n"
        assert (await client.get("/health")).json()["state"] == "healthy"
        assert (await client.get("/health/ready")).text == "ready\n"
        metrics = await client.get("/metrics")
        assert metrics.headers["content-type"].startswith("text/plain; version=0.0.4")
        assert samples(metrics.text)['tidemill_partitions{topic="orders"}'] == 2
        nothing, posted = await client.get("/nothing"), await client.post("/")
        assert (nothing.status_code, nothing.text) == (404, f"/nothing {MISSING}\n")
        assert (posted.status_code, posted.text) == (405, "/ does not accept POST\n")
        refused = await client.put("/api/topics")
        assert (refused.status_code, refused.json()) == (405, {"error": "/api/topics does not accept PUT"})
        assert set(refused.headers["allow"].split(", ")) == {"GET", "HEAD"}
        assert "default-src 'none'" in refused.headers["content-security-policy"]
        assert (await client.get("/api/nothing")).json() == {"error": f"/api/nothing {MISSING}"}
        page = await client.get("/<nothing>", headers={"accept": "text/html"})
        assert (page.status_code, "no page <code>/&lt;nothing&gt;</code>" in page.text) == (404, True)
        headed = await client.head("/api/topics")
        assert (headed.status_code, headed.content) == (200, b"")


async def test_a_failed_partition_is_not_ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tidemill.broker.partitions import Partitions

    async with running_console(tmp_path) as (client, _server):
        monkeypatch.setattr(Partitions, "broken", lambda _: {("orders", 0): OSError("disk <full>")})
        ready = await client.get("/health/ready")
        assert ready.status_code == 503
        assert "orders-0: disk <full>" in ready.text
        assert "orders-0: disk &lt;full&gt;" in (await client.get("/")).text
        health = await client.get("/health")
        assert (health.status_code, health.json()["state"]) == (503, "degraded")
        assert (await client.get("/health/live")).status_code == 200


async def test_a_broker_outside_its_cluster_is_not_ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tidemill.cluster.membership import Membership

    async with running_console(tmp_path) as (client, _server):
        monkeypatch.setattr(Membership, "alive", property(lambda _: False))
        ready = await client.get("/health/ready")
        assert ready.status_code == 503
        assert "not a member of its cluster" in ready.text
        assert (await client.get("/health/live")).status_code == 200
        monkeypatch.undo()
        assert (await client.get("/health/ready")).status_code == 200


async def test_a_full_disk_is_an_alert_and_can_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tidemill.broker.partitions import Partitions

    async with running_console(tmp_path) as (client, _server):
        monkeypatch.setattr(Partitions, "lacks_room", True)
        health = await client.get("/health")
        assert (health.status_code, health.json()["state"]) == (503, "degraded")
        assert health.json()["streams"]["reasons"] == ["the disk is full: records are rejected until space is free"]
        assert (await client.get("/health/ready")).status_code == 200


async def test_garbage_is_answered_or_closed(tmp_path: Path) -> None:
    async with running_console(tmp_path) as (client, server):
        for garbage in (b"\0" * 100, b"GET / HTTP/9.9\r\n\r\n", b"GET http://[ HTTP/1.1\r\n\r\n"):
            reader, writer = await asyncio.open_connection(*server.address)
            writer.write(garbage)
            await writer.drain()
            writer.write_eof()
            await asyncio.wait_for(reader.read(), WAIT_S)
            writer.close()
        assert (await client.get("/health/live")).status_code == 200


async def test_closing_does_not_wait_for_clients_that_do_not_read(tmp_path: Path) -> None:
    """The server has ended long before the client would read: the client here never does."""
    async with running_console(tmp_path) as (client, server):
        await server.loaded()
        stuck = socket.create_connection(server.address)
        stuck.sendall(b"GET /api/topics HTTP/1.1\r\nHost: x\r\n\r\n" * 2000)
        idle = socket.create_connection(server.address)
        await client.get("/health/live")
        await asyncio.wait_for(server.close(), WAIT_S)
        with pytest.raises(OSError, match=r"\[Errno"):
            socket.create_connection(server.address, timeout=WAIT_S)
        stuck.close()
        idle.close()


async def test_closing_right_after_start(tmp_path: Path) -> None:
    async with running(tmp_path, memory=True) as broker:
        server = HttpServer(broker, lambda: FACTS, NoSql())
        await server.start("127.0.0.1", 0)
        await asyncio.wait_for(server.close(), WAIT_S)


async def test_a_console_that_cannot_be_loaded_is_logged_and_refuses_clients(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(name: str) -> None:
        raise ImportError(f"no module {name}")

    monkeypatch.setattr(server_module, "import_module", fail)
    async with running(tmp_path, memory=True) as broker:
        server = HttpServer(broker, lambda: FACTS, NoSql())
        with capture_logs() as logged:
            await server.start("127.0.0.1", 0)
            with pytest.raises(ImportError):
                await server.loaded()
        [line] = [each for each in logged if each["event"] == "http_server_failed"]
        assert (line["log_level"], line["address"]) == ("error", f"127.0.0.1:{server.address[1]}")
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(server.address, timeout=WAIT_S)
        await asyncio.wait_for(server.close(), WAIT_S)


def test_timelines_are_reported(tidemill_broker: Broker) -> None:
    from tidemill import Timeline

    with Timeline(tidemill_broker.grpc, "reminders") as timeline:
        timeline.create()
    found = httpx.get(f"{tidemill_broker.http}/api/timelines", timeout=WAIT_S).json()["timelines"]
    assert [(each["name"], each["state"], each["consumers"]) for each in found] == [("reminders", "ready", 0)]


def test_a_running_broker_shows_what_runs_where(tidemill_broker: Broker) -> None:
    status = httpx.get(f"{tidemill_broker.http}/api/status", timeout=WAIT_S)
    runs = json.loads(status.text)["runs"]
    assert runs["kafka"] == tidemill_broker.bootstrap_servers
    assert f"http://{runs['http']}" == tidemill_broker.http
    health = httpx.get(f"{tidemill_broker.http}/health", timeout=WAIT_S).json()
    assert health["timelines"]["state"] == "healthy"
    assert health["member"]
    assert [(seen["broker"], seen["state"]) for seen in health["brokers"]] == [(0, "healthy")]


def test_metrics_move_with_what_clients_do(tidemill_broker: Broker) -> None:
    from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
    from confluent_kafka.admin import AdminClient, NewTopic

    client = {"bootstrap.servers": tidemill_broker.bootstrap_servers}
    admin, producer = AdminClient(client), Producer(client)
    admin.create_topics([NewTopic("counted", 3, 1)])["counted"].result(WAIT_S)
    with pytest.raises(KafkaException, match="exists already"):
        admin.create_topics([NewTopic("counted", 3, 1)])["counted"].result(WAIT_S)
    for _ in range(5):
        producer.produce("counted", b"v" * 100, partition=0)
    assert producer.flush(WAIT_S) == 0
    reader = Consumer({**client, "group.id": "counted"})
    reader.assign([TopicPartition("counted", 0, 0)])
    assert reader.poll(WAIT_S) is not None
    found = metrics(tidemill_broker)
    reader.close()
    assert found['tidemill_requests_total{api="Produce",server="kafka"}'] >= 1
    assert found['tidemill_request_duration_seconds_count{api="Fetch",server="kafka"}'] >= 1
    assert found['tidemill_request_errors_total{api="CreateTopics",error="TopicAlreadyExists",server="kafka"}'] == 1
    assert found['tidemill_topic_records_in_total{topic="counted"}'] == 5
    assert found['tidemill_topic_bytes_in_total{topic="counted"}'] == found['tidemill_log_bytes{topic="counted"}'] > 500
    assert found['tidemill_topic_bytes_out_total{topic="counted"}'] > 0
    assert found['tidemill_topic_fetches_total{topic="counted"}'] >= 1
    assert found['tidemill_partitions{topic="counted"}'] == 3
    assert found['tidemill_connections{server="kafka"}'] >= 2
    assert found["tidemill_controller"] == 1
    assert found["tidemill_offline_partitions"] == 0
    assert any(name.startswith("tidemill_build_info{") and value == 1 for name, value in found.items())
    assert found["process_resident_memory_bytes"] > 10_000_000
    assert found["process_open_fds"] > 3
    assert found["process_max_fds"] > found["process_open_fds"]
    assert found["tidemill_disk_size_bytes"] > found["tidemill_disk_free_bytes"] > 0


def test_errors_and_groups_are_counted(tidemill_broker: Broker) -> None:
    from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
    from confluent_kafka.admin import AdminClient, NewTopic

    client = {"bootstrap.servers": tidemill_broker.bootstrap_servers}
    admin = AdminClient(client)
    small = NewTopic("small", 1, 1, config={"max.message.bytes": "100"})
    before = metrics(tidemill_broker)
    admin.create_topics([small])["small"].result(WAIT_S)
    with pytest.raises(KafkaException):
        admin.create_topics([small])["small"].result(WAIT_S)
    refused: list[KafkaError] = []
    producer = Producer({**client, "retries": 0})
    producer.produce("small", b"v" * 1_000, on_delivery=lambda error, _: refused.append(error))
    assert producer.flush(WAIT_S) == 0
    producer.produce("small", b"v")
    assert producer.flush(WAIT_S) == 0
    assert refused[0].code() == KafkaError.MSG_SIZE_TOO_LARGE
    reader = Consumer({**client, "group.id": "counted-group", "auto.offset.reset": "error"})
    reader.assign([TopicPartition("small", 0, 77)])
    message = reader.poll(WAIT_S)
    assert message is not None
    assert message.error() is not None
    reader.unassign()
    reader.subscribe(["small"])
    reader.poll(1)
    reader.commit(offsets=[TopicPartition("small", 0, 1)], asynchronous=False)
    found = metrics(tidemill_broker)
    reader.close()

    def more(name: str) -> float:
        return found[name] - before.get(name, 0)

    assert more('tidemill_topic_commands_total{operation="create"}') == 2
    assert more('tidemill_topic_command_errors_total{error="TopicAlreadyExists",operation="create"}') == 1
    assert found['tidemill_topic_errors_total{error="MessageTooLarge",operation="produce",topic="small"}'] == 1
    assert found['tidemill_topic_errors_total{error="OffsetOutOfRange",operation="fetch",topic="small"}'] >= 1
    assert more("tidemill_group_rebalances_total") >= 1
    assert more("tidemill_offset_commits_total") >= 1
    assert found['tidemill_group_generation{group="counted-group"}'] >= 1
    assert not any("MemberIdRequired" in name for name in found)


def test_bytes_and_connections_are_counted_by_partner(tidemill_broker: Broker) -> None:
    from confluent_kafka import Consumer, Producer, TopicPartition

    size = 50_000
    before = metrics(tidemill_broker)
    client = {"bootstrap.servers": tidemill_broker.bootstrap_servers}
    producer = Producer(client)
    producer.produce("moved", os.urandom(size))
    assert producer.flush(WAIT_S) == 0
    reader = Consumer({**client, "group.id": "moved"})
    reader.assign([TopicPartition("moved", 0, 0)])
    assert reader.poll(WAIT_S) is not None
    eventually(lambda: metrics(tidemill_broker)["tidemill_fetches_waiting"] >= 1, "no fetch waits")
    found = metrics(tidemill_broker)

    def more(name: str, labels: str) -> float:
        line = f"tidemill_{name}{{{labels}}}"
        return found[line] - before.get(line, 0)

    for direction in ("in", "out"):
        assert more("network_bytes_total", f'direction="{direction}",partner="kafka_client"') > size
        assert more("network_bytes_total", f'direction="{direction}",partner="http_client"') > 10
    assert more("network_latency_seconds_count", 'partner="http_client"') >= 1
    for kind in ("producer", "consumer"):
        assert more("channels", f'server="kafka",type="{kind}"') == 1
    assert found['tidemill_requests_in_flight{server="kafka"}'] >= 1
    assert found['tidemill_requests_in_flight{server="http"}'] >= 1  # this one
    assert found['tidemill_connections{server="http"}'] >= 1
    assert "tidemill_kafka_request_bytes" in found
    reader.close()
    del producer
    eventually(
        lambda: (
            metrics(tidemill_broker)['tidemill_channels{server="kafka",type="producer"}']
            == before.get('tidemill_channels{server="kafka",type="producer"}', 0)
        ),
        "the producer is still counted",
    )


def test_a_producer_that_sends_nonsense_is_counted(tidemill_broker: Broker) -> None:
    failed = 'tidemill_channel_errors_total{server="kafka",type="producer"}'
    before = metrics(tidemill_broker)
    host, port = tidemill_broker.bootstrap_servers.split(":")
    with socket.create_connection((host, int(port)), timeout=WAIT_S) as client:
        client.sendall(frame(produce_request()))
        assert client.recv(4)
        client.sendall(frame(b"\x7f\xff\x00\x00"))
        while client.recv(65_536):
            pass
    with socket.create_connection((host, int(port)), timeout=WAIT_S) as client:
        client.sendall(frame(b"\x7f\xff\x00\x00"))  # no producer yet
        while client.recv(65_536):
            pass
    ended = 'tidemill_kafka_connections_ended_early_total{reason="invalid request or login"}'
    eventually(lambda: metrics(tidemill_broker)[ended] - before[ended] == 2, "the end is not counted")
    assert metrics(tidemill_broker)[failed] - before[failed] == 1


def frame(content: bytes) -> bytes:
    return struct.pack(">i", len(content)) + content


def produce_request() -> bytes:
    """A Produce request of version 3 without topics."""
    return struct.pack(">hhihhhii", 0, 3, 1, -1, -1, -1, 1_000, 0)


def test_streams_over_grpc_are_counted_at_their_topic(tidemill_broker: Broker) -> None:
    from tidemill import Consumer, Timeline, TopicProducer

    with TopicProducer(tidemill_broker.grpc, "over-grpc") as producer:
        producer.send(b"v" * 100)
        producer.flush()
    with Consumer(tidemill_broker.grpc, "grpc-readers", ["over-grpc"]) as reader:
        assert reader.next(WAIT_S * 1_000) is not None
    found = metrics(tidemill_broker)
    assert found['tidemill_topic_records_in_total{topic="over-grpc"}'] == 1
    assert found['tidemill_topic_bytes_out_total{topic="over-grpc"}'] > 100
    assert found['tidemill_topic_fetches_total{topic="over-grpc"}'] == 1
    assert found['tidemill_network_bytes_total{direction="in",partner="grpc_client"}'] > 100
    assert found['tidemill_network_bytes_total{direction="out",partner="grpc_client"}'] > 100
    assert found['tidemill_requests_in_flight{server="grpc"}'] >= 0
    with Timeline(tidemill_broker.grpc, name="connected") as timeline:
        timeline.create()
        assert metrics(tidemill_broker)['tidemill_connections{server="grpc"}'] >= 1
    assert found['tidemill_requests_total{api="BrokerService/Produce",server="grpc"}'] >= 1


def test_records_that_wait_for_their_time_are_no_lag(tidemill_broker: Broker) -> None:
    from confluent_kafka import Consumer, Producer, TopicPartition
    from confluent_kafka.admin import AdminClient, NewTopic

    client = {"bootstrap.servers": tidemill_broker.bootstrap_servers}
    topic = NewTopic("later", 1, 1, config={"tidemill.schedule.enable": "true"})
    admin, producer = AdminClient(client), Producer({**client, "linger.ms": 0})
    admin.create_topics([topic])["later"].result(WAIT_S)
    producer.produce("later", b"now")
    assert producer.flush(WAIT_S) == 0
    producer.produce("later", b"in an hour", headers={"tidemill-delay-ms": b"3600000"})
    assert producer.flush(WAIT_S) == 0
    reader = Consumer({**client, "group.id": "punctual"})
    reader.commit(offsets=[TopicPartition("later", 0, 1)], asynchronous=False)
    reader.close()
    lag = 'tidemill_group_lag_records{group="punctual",topic="later"}'
    eventually(lambda: lag in metrics(tidemill_broker), "the lag is not reported")
    found = metrics(tidemill_broker, "?detail=partition")
    assert found['tidemill_partition_log_end_offset{partition="0",topic="later"}'] == 2
    assert found[lag] == 0
    assert found['tidemill_group_lag_seconds{group="punctual",topic="later"}'] == 0
    assert found['tidemill_group_partition_lag_records{group="punctual",partition="0",topic="later"}'] == 0


def test_an_unknown_detail_of_metrics_is_refused(tidemill_broker: Broker) -> None:
    refused = httpx.get(f"{tidemill_broker.http}/metrics?detail=everything", timeout=WAIT_S)
    assert (refused.status_code, refused.text) == (
        400,
        "detail=everything is unknown; leave it out, or use detail=partition\n",
    )


def metrics(broker: Broker, query: str = "") -> dict[str, float]:
    return scraped(broker.http, query)


async def test_questions_that_cannot_be_answered(tmp_path: Path) -> None:
    async with running_console(tmp_path) as (client, _):
        reported = await client.post("/api/v1/sql", json={"query": "SELECT 1", "format": "csv"})
        assert (reported.status_code, reported.json()) == (503, {"error": "no engine for SELECT 1 as csv"})
        assert (await client.get("/api/v1/sql")).status_code == 405
        # A page of another site can send this without asking: it gets nothing.
        body, kind = b'{"query": "SELECT 1"}', {"content-type": "text/plain"}
        plain = await client.post("/api/v1/sql", content=body, headers=kind)
        assert plain.status_code == 415
        head = {"content-type": "application/json"}
        for body in (
            b"",
            b"{",
            b"[]",
            b'{"query": 1}',
            b'{"query": "SELECT 1", "format": "xml"}',
            b'{"query": "\\ud800"}',
            b"[" * 100_000,
        ):
            wrong = await client.post("/api/v1/sql", content=body, headers=head)
            assert wrong.status_code == 400, body[:20]
        assert (await client.post("/api/v1/sql", content=b" " * 600_000, headers=head)).status_code == 413


def test_requests_of_every_server_are_counted(tidemill_broker: Broker) -> None:
    from tidemill import Message, Timeline, TimelineError

    with Timeline(tidemill_broker.grpc, name="missing") as timeline, pytest.raises(TimelineError):
        timeline.schedule([Message(b"v", due=4e9)])
    httpx.get(f"{tidemill_broker.http}/api/status", timeout=WAIT_S)
    for path in ("/missing", "/also-missing"):
        httpx.get(f"{tidemill_broker.http}{path}", timeout=WAIT_S)
    found = metrics(tidemill_broker)
    asked = 'api="TimelineService/Handshake"'
    assert found[f'tidemill_requests_total{{{asked},server="grpc"}}'] >= 1
    assert found[f'tidemill_request_errors_total{{{asked},error="UnknownTimeline",server="grpc"}}'] == 1
    assert found['tidemill_requests_total{api="GET /api/status",server="http"}'] >= 1
    assert found['tidemill_request_errors_total{api="(other)",error="404",server="http"}'] >= 2
    assert not any("/missing" in name or '"missing"' in name for name in found)
    assert metrics(tidemill_broker)['tidemill_requests_total{api="GET /metrics",server="http"}'] >= 1
