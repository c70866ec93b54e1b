"""Streams of documents: order, heartbeats, and every way in which one ends. Time is virtual."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any, cast

import pytest

from tidemill.security.client_rights import ClientRights
from tidemill.security.core.principal import ANONYMOUS
from tidemill.servers.http.api import event_stream
from tidemill.servers.http.api.api_call import ApiCall
from tidemill.servers.http.api.api_problem import ApiProblem
from tidemill.servers.http.api.event_stream import CLIENT_STREAMS_MAX, HEARTBEAT_S, STREAM_S, EventStreams
from tidemill.servers.http.logins import HttpClient
from tidemill.wire.http.document import Document, Problem

pytestmark = pytest.mark.event_loop("virtual")


class Visitor:
    """A client of one stream, and what it has received."""

    def __init__(self, host: str = "10.0.0.1", *, reads: bool = True) -> None:
        self.client = HttpClient(cast("ClientRights", _Rights(host)))
        self.received: list[bytes] = []
        self.left = asyncio.Event()
        self.reads = asyncio.Event()
        self.call = _Call(self.client)
        if reads:
            self.reads.set()

    async def receive(self) -> dict[str, Any]:
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        await self.reads.wait()
        if message["type"] == "http.response.body":
            self.received.append(message["body"])

    async def watch(self, streams: EventStreams, documents: AsyncGenerator[Document, None]) -> None:
        call = cast("ApiCall[None, None]", self.call)
        await streams.open(call, documents)({"type": "http", "method": "GET"}, self.receive, self.send)


class _Rights:
    def __init__(self, host: str) -> None:
        self.principal, self.host = ANONYMOUS, host


class _Call:
    def __init__(self, client: HttpClient) -> None:
        self.client, self.rights, self.is_allowed = client, client.rights, True


def never(_: HttpClient) -> bool:
    return False


async def texts(*words: str, every_s: float = 0, closed: Callable[[], None] = lambda: None) -> AsyncGenerator[Document]:
    try:
        for word in words:
            await asyncio.sleep(every_s)
            yield Problem(error=word)
    finally:
        closed()


async def silence() -> AsyncGenerator[Document]:
    await asyncio.Event().wait()
    yield Problem(error="never")


def data(*words: str) -> list[bytes]:
    return [f'data: {{"error":"{word}"}}\n\n'.encode() for word in words]


async def test_documents_come_in_order_and_the_stream_ends_after_the_last() -> None:
    visitor = Visitor()
    await visitor.watch(EventStreams(never), texts("a", "b", "line\\nbreak"))
    assert visitor.received == [event_stream.BEGIN, *data("a", "b", "line\\\\nbreak"), b""]


async def test_a_silent_stream_sends_heartbeats_and_ends_after_its_time() -> None:
    visitor, loop = Visitor(), asyncio.get_running_loop()
    began = loop.time()
    await visitor.watch(EventStreams(never), silence())
    assert loop.time() - began == pytest.approx(STREAM_S, abs=HEARTBEAT_S)
    assert visitor.received.count(event_stream.HEARTBEAT) == STREAM_S // HEARTBEAT_S


async def test_a_busy_stream_ends_after_its_time_too() -> None:
    visitor, closed = Visitor(), asyncio.Event()
    await visitor.watch(EventStreams(never), texts(*["x"] * 10_000, every_s=1, closed=closed.set))
    assert STREAM_S - 1 <= len(visitor.received) <= STREAM_S + 3
    assert closed.is_set()


async def test_a_client_that_leaves_ends_its_stream_and_the_source() -> None:
    visitor, closed = Visitor(), asyncio.Event()
    watching = asyncio.create_task(visitor.watch(EventStreams(never), texts("a", "b", every_s=5, closed=closed.set)))
    await asyncio.sleep(6)
    visitor.left.set()
    await watching
    assert closed.is_set()
    assert visitor.received == [event_stream.BEGIN, *data("a"), b""]


async def test_a_closing_server_ends_every_stream_at_once() -> None:
    streams = EventStreams(never)
    visitors = [Visitor(f"10.0.0.{number}") for number in range(5)]
    watching = [asyncio.create_task(each.watch(streams, silence())) for each in visitors]
    await asyncio.sleep(1)
    streams.close()
    before = asyncio.get_running_loop().time()
    await asyncio.gather(*watching)
    assert asyncio.get_running_loop().time() == before


async def test_a_login_that_ends_ends_its_stream() -> None:
    visitor, is_over = Visitor(), asyncio.Event()
    watching = asyncio.create_task(visitor.watch(EventStreams(lambda _: is_over.is_set()), silence()))
    await asyncio.sleep(35)
    assert not watching.done()
    is_over.set()
    await asyncio.sleep(HEARTBEAT_S)
    assert watching.done()


async def test_a_client_that_loses_a_right_loses_its_stream() -> None:
    visitor = Visitor()
    watching = asyncio.create_task(visitor.watch(EventStreams(never), silence()))
    await asyncio.sleep(35)
    visitor.call.is_allowed = False
    await asyncio.sleep(HEARTBEAT_S)
    assert watching.done()


async def test_no_document_is_sent_after_the_end_of_the_login() -> None:
    visitor, is_over = Visitor(), asyncio.Event()
    watching = asyncio.create_task(
        visitor.watch(EventStreams(lambda _: is_over.is_set()), texts("before", "after", every_s=4))
    )
    await asyncio.sleep(5)
    is_over.set()
    await watching
    assert data("before")[0] in visitor.received
    assert data("after")[0] not in visitor.received


async def test_a_client_that_does_not_read_holds_back_the_source() -> None:
    taken = []

    async def source() -> AsyncGenerator[Document]:
        for number in range(1000):
            taken.append(number)
            yield Problem(error=str(number))

    visitor = Visitor(reads=False)
    watching = asyncio.create_task(visitor.watch(EventStreams(never), source()))
    await asyncio.sleep(100)
    assert len(taken) <= 1
    visitor.reads.set()
    await watching
    assert len(taken) == 1000


async def test_one_client_has_a_bounded_number_of_streams() -> None:
    streams = EventStreams(never)
    visitors = [Visitor("10.0.0.1") for _ in range(CLIENT_STREAMS_MAX)]
    watching = [asyncio.create_task(each.watch(streams, silence())) for each in visitors]
    await asyncio.sleep(1)
    with pytest.raises(ApiProblem, match="live views of this client are open") as refused:
        await Visitor("10.0.0.1").watch(streams, texts("a"))
    assert refused.value.status == 429
    other = Visitor("10.0.0.2")
    await other.watch(streams, texts("a"))
    assert data("a")[0] in other.received
    visitors[0].left.set()
    await watching[0]
    again = Visitor("10.0.0.1")
    await again.watch(streams, texts("b"))
    assert data("b")[0] in again.received
    streams.close()
    await asyncio.gather(*watching)


async def test_all_clients_have_a_bounded_number_of_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_stream, "STREAMS_MAX", 3)
    streams = EventStreams(never)
    watching = [asyncio.create_task(Visitor(f"10.0.0.{n}").watch(streams, silence())) for n in range(3)]
    await asyncio.sleep(1)
    with pytest.raises(ApiProblem):
        await Visitor("10.0.0.9").watch(streams, texts("a"))
    streams.close()
    await asyncio.gather(*watching)


async def test_a_source_that_fails_says_why() -> None:
    async def failing() -> AsyncGenerator[Document]:
        yield Problem(error="a")
        raise ApiProblem(404, "topic x does not exist")

    visitor = Visitor()
    await visitor.watch(EventStreams(never), failing())
    assert visitor.received[-2] == b'event: problem\ndata: {"error":"topic x does not exist"}\n\n'


async def test_a_head_request_gets_no_documents() -> None:
    visitor = Visitor()
    call = cast("ApiCall[None, None]", _Call(visitor.client))
    response = EventStreams(never).open(call, silence())
    await response({"type": "http", "method": "HEAD"}, visitor.receive, visitor.send)
    assert visitor.received == [b""]
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
