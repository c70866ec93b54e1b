"""Connections: order, limits, and clients that misbehave."""

import asyncio
import gc
import struct
import threading
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest
from tests.support.kafka_server import RawClient, batch, body_of, frame, produce_fields, running_kafka_server
from tests.support.waiting import eventually_async

from tidemill.model.errors import GroupIdNotFound
from tidemill.servers.kafka import api_versions, connection
from tidemill.servers.kafka.api import Api, Buffers, Call
from tidemill.servers.kafka.api_table import ApiTable, standard_table
from tidemill.servers.kafka.eviction import SILENT_S
from tidemill.wire.kafka.frames import FRAME_BYTES_EAGER
from tidemill.wire.kafka.loading import load
from tidemill.wire.kafka.schema import api_name

pytestmark = pytest.mark.event_loop("uvloop")

API_VERSIONS = 18
VERSIONS = {0: 3, 1: 4}

API_VERSIONS_ROW = Api(key=18, name="ApiVersions", versions=(0, 4), handle=api_versions.api_versions)


async def test_every_version_of_api_versions(tmp_path: Path) -> None:
    async with running_kafka_server(tmp_path) as server:
        client = await RawClient.connect(server)
        for version in range(5):
            reported = await client.ask(API_VERSIONS, version, client_software_name="t", client_software_version="1")
            assert reported.error_code == 0
            ranges = {api.api_key: (api.min_version, api.max_version) for api in reported.api_keys}
            assert ranges[0][0] == 0  # librdkafka before 2.11.1 looks for Produce 0
            assert ranges[18] == (0, 4)
            assert list(ranges) == sorted(ranges)
        await client.close()


async def test_api_versions_too_new_is_answered_in_version_0(tmp_path: Path) -> None:
    async with running_kafka_server(tmp_path) as server:
        client = await RawClient.connect(server)
        client.writer.write(struct.pack(">ihhih", 14, API_VERSIONS, 99, 7, 4) + b"test")
        data = await client.frame()
        assert data == struct.pack(">ihihhh", 7, 35, 1, API_VERSIONS, 0, 4)
        await client.ask(API_VERSIONS, 0)
        await client.close()


async def test_a_bad_software_name_is_an_invalid_request(tmp_path: Path) -> None:
    async with running_kafka_server(tmp_path) as server:
        client = await RawClient.connect(server)
        reported = await client.ask(API_VERSIONS, 3, client_software_name="-x", client_software_version="1")
        assert reported.error_code == 42
        await client.close()


@pytest.mark.parametrize(
    "data",
    [
        struct.pack(">i", -1),
        struct.pack(">i", 2**31 - 1),
        struct.pack(">i", 104_857_601),
        struct.pack(">i", 0),
        struct.pack(">ihhih", 10, 999, 0, 1, -1),  # no such API
        struct.pack(">ihhih", 10, 3, 999, 1, -1),  # no such version
        struct.pack(">ihhih", 10, 0, 2, 1, -1),  # Produce 2 is listed and not served
        struct.pack(">ihhih", 10, 3, 1, 1, -5),  # a client id of -5 bytes
        struct.pack(">ihhih", 10, 3, 1, 1, 3000),  # a client id beyond the frame
        struct.pack(">ihhih", 12, 3, 1, 1, 2) + b"\xff\xfe",  # not UTF-8
        struct.pack(">ihhihi", 14, 3, 1, 1, -1, 2**31 - 1),  # 2^31 - 1 topics
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(600),  # a TLS handshake
    ],
)
async def test_an_invalid_request_closes_only_its_connection(tmp_path: Path, data: bytes) -> None:
    async with running_kafka_server(tmp_path) as server:
        honest = await RawClient.connect(server)
        client = await RawClient.connect(server)
        client.writer.write(data)
        if data.startswith((b"GET", b"\x16")):
            client.writer.write_eof()
        assert await client.ended()
        await honest.ask(API_VERSIONS, 0)
        await honest.close()
        await client.close()


async def test_answers_before_the_bad_frame_arrive(tmp_path: Path) -> None:
    async with running_kafka_server(tmp_path) as server:
        client = await RawClient.connect(server)
        first = client.send(API_VERSIONS, 0)
        await client.answer(API_VERSIONS, 0, first)
        client.writer.write(struct.pack(">ihhih", 10, 999, 0, 1, -1))
        assert await client.ended()
        await client.close()


async def test_a_request_may_come_byte_by_byte_and_many_in_one_piece(tmp_path: Path) -> None:
    async with running_kafka_server(tmp_path) as server:
        client = await RawClient.connect(server)
        for byte in frame(API_VERSIONS, 0, 5, b""):
            client.writer.write(bytes([byte]))
            await client.writer.drain()
            await asyncio.sleep(0)
        await client.answer(API_VERSIONS, 0, 5)
        client.writer.write(b"".join(frame(API_VERSIONS, 0, number, b"") for number in range(300)))
        for number in range(300):
            await client.answer(API_VERSIONS, 0, number)
        await client.close()


async def test_a_large_frame_in_pieces(tmp_path: Path) -> None:
    async with running_kafka_server(tmp_path, {"message.max.bytes": "30000000"}) as server:
        await server.broker.topics.create("t")
        client = await RawClient.connect(server)
        for size in (300_000, 5_000_000, 20_000_000):
            records = batch(b"x" * size)
            data = frame(0, 9, 1, body_of(0, 9, produce_fields(9, "t", 0, records)))
            for start in range(0, len(data), 700_001):
                client.writer.write(data[start : start + 700_001])
                await client.writer.drain()
            answer = await client.answer(0, 9, 1)
            assert answer.responses[0].partition_responses[0].error_code == 0
        found = await server.broker.view.partition("t", 0).reader.read(2, 1 << 25)
        assert b"".join(found.records)[61:] == records[61:]
        await client.close()


class Slow:
    """Handlers that end when the test says so."""

    def __init__(self) -> None:
        for key, version in VERSIONS.items():  # the first request of a version starts alone
            load(key, version)
        self.started: list[int] = []
        self.ends: dict[int, asyncio.Event] = {}
        self.cancelled: list[int] = []

    def read(self, frame: bytearray, position: int, _version: int, _items_max: int = 0) -> int:
        return int.from_bytes(frame[position : position + 4], "big")

    def handle(self, call: Call, number: int) -> Awaitable[Buffers]:
        self.started.append(number)
        self.ends[number] = asyncio.Event()
        return self._wait(number)

    async def _wait(self, number: int) -> Buffers:
        try:
            await self.ends[number].wait()
        except asyncio.CancelledError:
            self.cancelled.append(number)
            raise
        return [number.to_bytes(4, "big")]

    def router(self, **options: Any) -> ApiTable:
        return ApiTable(
            [
                API_VERSIONS_ROW,
                Api(key=0, name="Produce", versions=(3, 3), handle=self.handle, read=self.read, pipelined=True),
                Api(key=1, name="Fetch", versions=(4, 4), handle=self.handle, read=self.read, **options),
            ]
        )


def request(key: int, number: int) -> bytes:
    return frame(key, VERSIONS[key], number, number.to_bytes(4, "big"))


async def test_pipelined_requests_start_together_and_are_answered_in_order(tmp_path: Path) -> None:
    slow = Slow()

    async with running_kafka_server(tmp_path, router=slow.router()) as server:
        client = await RawClient.connect(server)
        client.writer.write(b"".join(request(0, number) for number in range(5)))
        await eventually_async(lambda: slow.started == [0, 1, 2, 3, 4])
        for number in (4, 2, 3, 1, 0):
            slow.ends[number].set()
            await asyncio.sleep(0)
        for number in range(5):
            assert await client.frame() == number.to_bytes(4, "big") * 2
        await client.close()


async def test_other_requests_wait_for_those_before_them(tmp_path: Path) -> None:
    slow = Slow()

    async with running_kafka_server(tmp_path, router=slow.router()) as server:
        client = await RawClient.connect(server)
        keys = [0, 0, 1, 0, 1]
        client.writer.write(b"".join(request(key, number) for number, key in enumerate(keys)))
        for expected in ([0, 1], [0, 1], [0, 1, 2], [0, 1, 2, 3], [0, 1, 2, 3, 4]):
            await eventually_async(lambda expected=expected: slow.started == expected)  # type: ignore[misc]
            done = next(number for number, end in slow.ends.items() if not end.is_set())
            slow.ends[done].set()
            assert await client.frame() == done.to_bytes(4, "big") * 2
        await client.close()


async def test_only_so_many_requests_are_under_way(tmp_path: Path) -> None:
    slow = Slow()
    count = 2000

    async with running_kafka_server(tmp_path, router=slow.router()) as server:
        client = await RawClient.connect(server)
        client.writer.write(b"".join(request(0, number) for number in range(count)))
        await eventually_async(lambda: len(slow.started) == connection.IN_FLIGHT_MAX)
        await asyncio.sleep(0.05)
        assert len(slow.started) == connection.IN_FLIGHT_MAX
        for number in range(count):
            await eventually_async(lambda number=number: number in slow.ends)  # type: ignore[misc]
            slow.ends[number].set()
        for number in range(count):
            assert await client.frame() == number.to_bytes(4, "big") * 2
        await client.close()


async def test_a_client_that_does_not_read_is_not_served_more(tmp_path: Path) -> None:
    answered = 0

    async def large(call: Call, _request: Any) -> Buffers:
        nonlocal answered
        answered += 1
        return [bytes(1 << 20)]

    router = ApiTable([API_VERSIONS_ROW, Api(key=1, name="Fetch", versions=(4, 4), handle=large, read=lambda *_: None)])
    async with running_kafka_server(tmp_path, router=router) as server:
        client = await RawClient.connect(server)
        client.writer.write(b"".join(request(1, number) for number in range(1000)))
        await eventually_async(lambda: answered > 1)
        before = -1
        while before != answered:
            before = answered
            await asyncio.sleep(0.05)
        assert answered < 100  # what fits into the buffers of the two sockets, and a little more
        assert server._owed_bytes > 0
        for number in range(1000):
            data = await client.frame()
            assert int.from_bytes(data[:4], "big") == number
        assert server._owed_bytes == 0
        await client.close()


async def test_only_so_many_bytes_are_under_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = Slow()
    monkeypatch.setattr(connection, "PENDING_BYTES_MAX", 1_000_000)
    large = [frame(0, 3, number, number.to_bytes(4, "big") + bytes(300_000)) for number in range(40)]

    async with running_kafka_server(tmp_path, router=slow.router()) as server:
        client = await RawClient.connect(server)
        client.writer.write(b"".join(large))
        await eventually_async(lambda: len(slow.started) == 4)
        await asyncio.sleep(0.05)
        assert len(slow.started) == 4
        assert 1_200_000 <= server._held_bytes < 2_000_000
        for number in range(40):
            await eventually_async(lambda number=number: number in slow.ends)  # type: ignore[misc]
            slow.ends[number].set()
            assert await client.frame() == number.to_bytes(4, "big") * 2
        assert server._held_bytes == 0
        await client.close()


@pytest.mark.parametrize("abandoned", [True, False])
async def test_a_long_poll_ends_with_its_client_and_other_work_does_not(tmp_path: Path, abandoned: bool) -> None:
    slow = Slow()
    async with running_kafka_server(tmp_path, router=slow.router(abandoned=abandoned)) as server:
        client = await RawClient.connect(server)
        client.writer.write(request(1, 0))
        await eventually_async(lambda: slow.started == [0])
        await client.close()
        await eventually_async(lambda: server.broker.metrics.connections["kafka"] == 0)
        await asyncio.sleep(0)
        assert slow.cancelled == ([0] if abandoned else [])
        slow.ends[0].set()


@pytest.mark.event_loop("asyncio")  # its transport reports the end before the next step of a task
async def test_a_long_poll_whose_client_leaves_before_its_first_step_is_closed(
    tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    class Leaving(Slow):
        def handle(self, call: Call, number: int) -> Awaitable[Buffers]:
            [one] = server._connections
            one.abort()
            return super().handle(call, number)

    slow = Leaving()
    async with running_kafka_server(tmp_path, router=slow.router(abandoned=True)) as server:
        client = await RawClient.connect(server)
        client.writer.write(request(1, 0))
        assert await client.ended()
        await client.close()
    gc.collect()
    assert (slow.started, slow.cancelled) == ([0], [])
    assert [str(each.message) for each in recwarn] == []


async def test_a_closing_server_answers_open_requests_and_starts_no_more(tmp_path: Path) -> None:
    slow = Slow()

    async with running_kafka_server(tmp_path, router=slow.router()) as server:
        client = await RawClient.connect(server)
        client.writer.write(request(0, 0) + request(1, 1))
        await eventually_async(lambda: slow.started == [0])
        closing = asyncio.create_task(server.close())
        await asyncio.sleep(0.01)
        client.writer.write(request(0, 2))
        await asyncio.sleep(0.01)
        slow.ends[0].set()
        assert await client.frame() == bytes(8)
        assert await client.ended()
        await closing
        assert slow.started == [0]
        with pytest.raises(ConnectionError):
            await RawClient.connect(server)
        await client.close()


async def test_an_error_of_a_handler_is_returned_in_the_response(tmp_path: Path) -> None:
    async def broken(call: Call, _request: Any) -> Any:
        raise ZeroDivisionError

    async def refusing(call: Call, _request: Any) -> Any:
        raise GroupIdNotFound("gone")

    router = ApiTable(
        [
            API_VERSIONS_ROW,
            Api(key=12, name="Heartbeat", versions=(0, 4), handle=broken),
            Api(key=13, name="LeaveGroup", versions=(0, 5), handle=refusing),
            Api(key=3, name="Metadata", versions=(0, 12), handle=broken),
        ]
    )
    async with running_kafka_server(tmp_path, router=router) as server:
        client = await RawClient.connect(server)
        assert (await client.ask(12, 4)).error_code == -1
        assert (await client.ask(13, 5)).error_code == 69
        client.send(3, 12)
        assert await client.ended()
        await client.close()
        failed = server.broker.metrics.api("kafka", "LeaveGroup").errors
        assert failed == {"GroupIdNotFound": 1}


async def test_acks_0_has_no_answer_and_an_error_ends_the_connection(tmp_path: Path) -> None:
    async with running_kafka_server(tmp_path) as server:
        await server.broker.topics.create("t")
        client = await RawClient.connect(server)
        for _ in range(3):
            client.send(0, 9, **produce_fields(9, "t", 0, batch(b"v"), acks=0))
        await client.ask(API_VERSIONS, 0)
        assert server.broker.view.partition("t", 0).log_end_offset == 3
        client.send(0, 9, **produce_fields(9, "missing", 0, batch(b"v"), acks=0))
        assert await client.ended()
        await client.close()


async def test_connections_beyond_the_limit_are_refused(tmp_path: Path) -> None:
    async with running_kafka_server(tmp_path, {"max.connections": "2"}) as server:
        clients = [await RawClient.connect(server) for _ in range(2)]
        for client in clients:
            await client.ask(API_VERSIONS, 0)
        third = await RawClient.connect(server)
        assert await third.ended()
        await third.close()
        await clients.pop().close()
        await eventually_async(lambda: server.broker.metrics.connections["kafka"] == 1)
        fourth = await RawClient.connect(server)
        await fourth.ask(API_VERSIONS, 0)
        for client in (*clients, fourth):
            await client.close()


async def test_quiet_connections_and_drops_are_closed_and_busy_ones_are_not(tmp_path: Path) -> None:
    slow = Slow()

    async with running_kafka_server(tmp_path, router=slow.router()) as server:
        quiet, dropping, busy = [await RawClient.connect(server) for _ in range(3)]
        await quiet.ask(API_VERSIONS, 0)
        dropping.writer.write(struct.pack(">i", 1000) + b"x")
        busy.writer.write(request(1, 1))
        await eventually_async(lambda: slow.started == [1])
        await eventually_async(lambda: any(each._uploads._deadline for each in server._connections))
        for each in server._connections:
            each.last_active -= 3600
            if each._uploads._deadline is not None:
                each._uploads._deadline -= 3600
        server._sweep()
        assert await quiet.ended()
        assert await dropping.ended()
        slow.ends[1].set()
        await busy.frame()
        for client in (quiet, dropping, busy):
            await client.close()


async def test_announcing_much_costs_little_and_is_counted(tmp_path: Path) -> None:
    async with running_kafka_server(tmp_path) as server:
        clients = [await RawClient.connect(server) for _ in range(50)]
        for client in clients:
            client.writer.write(struct.pack(">i", 90 << 20) + b"x")
        await eventually_async(lambda: sum(each._frames.partial_size > 0 for each in server._connections) == 50)
        assert {len(each._frames._frame or b"") for each in server._connections} == {FRAME_BYTES_EAGER}
        assert server._held_bytes == 50 * FRAME_BYTES_EAGER
        honest = await RawClient.connect(server)
        await honest.ask(API_VERSIONS, 0)
        for client in (*clients, honest):
            await client.close()
        await eventually_async(lambda: not server._connections)
        assert server._held_bytes == 0


async def test_uploads_that_stand_still_are_closed_first_when_memory_is_short(tmp_path: Path) -> None:
    limits = {"queued.max.request.bytes": "2000000", "socket.request.max.bytes": "1000000"}

    async with running_kafka_server(tmp_path, limits) as server:
        stopped = [await RawClient.connect(server) for _ in range(3)]
        for client in stopped:
            client.writer.write(struct.pack(">i", 900_000) + bytes(500_000))
        await eventually_async(lambda: sum(each._frames.received_bytes == 500_000 for each in server._connections) == 3)
        for each in server._connections:
            each._uploads._began -= 60
        busy = await RawClient.connect(server)
        busy.writer.write(struct.pack(">i", 900_000) + bytes(700_000))
        await eventually_async(lambda: any(each._frames.received_bytes == 700_000 for each in server._connections))
        assert len(server._connections) < 4, "a slow one was closed, not the newcomer"
        newest = await RawClient.connect(server)
        await newest.ask(API_VERSIONS, 0)
        assert server._held_bytes <= 2_000_000
        for client in (*stopped, busy, newest):
            await client.close()


async def test_a_request_that_waits_for_memory_is_read_later_and_small_ones_are_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = Slow()
    monkeypatch.setattr(connection, "CROWDED_BYTES_MAX", 1_000)
    limits = {"queued.max.request.bytes": "100000", "socket.request.max.bytes": "100000"}

    async with running_kafka_server(tmp_path, limits, router=slow.router()) as server:
        first, second, small = [await RawClient.connect(server) for _ in range(3)]
        first.writer.write(frame(0, 3, 1, (1).to_bytes(4, "big") + bytes(90_000)))
        await eventually_async(lambda: slow.started == [1])
        second.writer.write(b"".join(frame(0, 3, n, n.to_bytes(4, "big") + bytes(20_000)) for n in (2, 3)))
        await eventually_async(lambda: server.is_crowded)
        small.writer.write(frame(0, 3, 4, (4).to_bytes(4, "big")))
        await eventually_async(lambda: 4 in slow.started)
        for number in (1, 2, 3, 4):
            await eventually_async(lambda number=number: number in slow.ends)  # type: ignore[misc]
            slow.ends[number].set()
        await first.frame()
        assert [await second.frame() for _ in range(2)]
        assert not server.is_crowded
        for client in (first, second, small):
            await client.close()


async def test_produce_requests_that_have_come_are_started_when_their_client_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = Slow()
    monkeypatch.setattr(connection, "IN_FLIGHT_MAX", 2)

    async with running_kafka_server(tmp_path, router=slow.router()) as server:
        client = await RawClient.connect(server)
        client.writer.write(b"".join(frame(0, 3, n, n.to_bytes(4, "big")) for n in range(5)))
        await eventually_async(lambda: slow.started == [0, 1])
        await client.close()
        await eventually_async(lambda: slow.started == [0, 1, 2, 3, 4])
        for end in slow.ends.values():
            end.set()
        await eventually_async(lambda: server._held_bytes == 0)


async def test_the_memory_of_a_request_counts_until_it_is_done_also_when_its_client_has_left(tmp_path: Path) -> None:
    slow = Slow()

    async with running_kafka_server(tmp_path, router=slow.router()) as server:
        client = await RawClient.connect(server)
        client.writer.write(frame(0, 3, 1, (1).to_bytes(4, "big") + bytes(90_000)))
        await eventually_async(lambda: slow.started == [1])
        await client.close()
        await eventually_async(lambda: not server._connections)
        assert server._held_bytes > 90_000
        slow.ends[1].set()
        await eventually_async(lambda: server._held_bytes == 0)


async def test_the_time_in_which_the_broker_reads_nothing_does_not_make_a_client_slow(tmp_path: Path) -> None:
    async with running_kafka_server(tmp_path) as server:
        client = await RawClient.connect(server)
        client.writer.write(struct.pack(">i", 90_000) + bytes(50_000))
        await eventually_async(lambda: any(each._frames.received_bytes == 50_000 for each in server._connections))
        (here,) = server._connections
        here.pause_writing()
        upload = here.upload(here._uploads._paused_at + 3600)
        assert upload is not None
        assert upload.age_s < 60
        here._uploads._paused_at -= 3600
        here._uploads._began -= 3600
        here.resume_writing()
        assert server._uploads()[0].age_s < 60
        await client.close()


async def test_a_connection_that_asks_for_nothing_gives_way_to_a_new_one(tmp_path: Path) -> None:
    async with running_kafka_server(tmp_path, {"max.connections": "3"}) as server:
        honest, silent, dropping = [await RawClient.connect(server) for _ in range(3)]
        await honest.ask(API_VERSIONS, 0)
        dropping.writer.write(struct.pack(">i", 1000) + b"x")
        await eventually_async(lambda: any(each._frames.received_bytes for each in server._connections))
        for each in server._connections:
            each.last_active -= SILENT_S
            each._uploads._began -= SILENT_S
        newcomers = []
        for gone in (dropping, silent):
            newcomer = await RawClient.connect(server)
            await newcomer.ask(API_VERSIONS, 0)
            assert await gone.ended()
            newcomers.append(newcomer)
        refused = await RawClient.connect(server)
        assert await refused.ended(), "the others are in use"
        await honest.ask(API_VERSIONS, 0)
        for client in (honest, silent, dropping, refused, *newcomers):
            await client.close()


def test_the_table_has_each_api_once() -> None:
    table = standard_table()
    assert all(low <= high for low, high in (api.versions for api in table.listed()))
    assert [api.name for api in table.listed()] == [api_name(api.key) for api in table.listed()]
    with pytest.raises(ValueError, match="two handlers"):
        ApiTable([API_VERSIONS_ROW, API_VERSIONS_ROW])


async def test_the_message_classes_of_a_version_are_imported_in_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[str] = []

    def load_here(key: int, version: int) -> None:
        threads.append(threading.current_thread().name)
        load(key, version)

    monkeypatch.setattr(connection, "load", load_here)
    monkeypatch.setattr(connection, "is_loaded", lambda _key, _version: bool(threads))

    async with running_kafka_server(tmp_path) as server:
        client = await RawClient.connect(server)
        assert (await client.ask(API_VERSIONS, 1)).error_code == 0
        assert (await client.ask(API_VERSIONS, 1)).error_code == 0
        await client.close()
    assert [name.rpartition("_")[0] for name in threads] == ["kafka-schema"]
