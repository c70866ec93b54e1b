"""The connections to other brokers are probed, opened again after a failure, and closed when a broker leaves."""

import asyncio
from typing import cast

from tests.support.waiting import eventually_async

from tidemill.broker.peer_watch import PeerWatch
from tidemill.client.kafka.errors import BrokerUnreachable, ConnectionLost
from tidemill.client.kafka.peer_connection import PeerConnection
from tidemill.testing.clock import VirtualClock


class Line:
    """A connection to a peer that may be cut."""

    def __init__(self, peers: "Lines", node_id: int) -> None:
        self.closed = False
        self._peers, self._node_id = peers, node_id

    async def call(self, _: object) -> None:
        if self._node_id in self._peers.cut:
            raise ConnectionLost("cut")
        await asyncio.sleep(0)

    def close(self) -> None:
        self.closed = True


class Lines:
    """All connections of one broker."""

    def __init__(self) -> None:
        self.registered = [2, 3]
        self.cut: set[int] = set()
        self.opened: list[Line] = []
        self.is_member = True
        self.clock = VirtualClock()
        self.watch = PeerWatch(self.connect, lambda: self.registered, lambda: self.is_member, self.clock, ttl_ms=4_000)

    async def connect(self, node_id: int) -> PeerConnection:
        if node_id in self.cut:
            raise BrokerUnreachable("cut")
        self.opened.append(Line(self, node_id))
        return cast("PeerConnection", self.opened[-1])

    async def probe(self, count: int = 1) -> None:
        for _ in range(count):
            self.clock.advance(2_000)
            await self.watch.probe()


async def test_a_cut_peer_is_missing_and_comes_back() -> None:
    lines = Lines()
    await lines.probe(3)
    assert len(lines.opened) == 2, "connections are kept"
    assert set(lines.watch.round_trips.averages_ms) == {2, 3}
    lines.cut = {3}
    await lines.probe(2)
    assert lines.watch.missing() == frozenset()
    await lines.probe(1)
    assert lines.watch.missing() == {3}
    lines.cut = set()
    await lines.probe(2)
    assert lines.watch.missing() == {3}
    await lines.probe(1)
    assert lines.watch.missing() == frozenset()
    assert len(lines.opened) == 3


async def test_a_broker_that_leaves_is_forgotten() -> None:
    lines = Lines()
    await lines.probe()
    lines.registered = [2]
    await lines.probe()
    assert [line.closed for line in lines.opened] == [False, True]
    assert set(lines.watch.round_trips.averages_ms) == {2}


async def test_without_a_session_nothing_is_missing() -> None:
    lines = Lines()
    lines.cut = {2, 3}
    await lines.probe(5)
    assert lines.watch.missing() == {2, 3}
    lines.is_member = False
    await lines.probe()
    assert lines.watch.missing() == frozenset()


async def test_a_stop_closes_the_connections() -> None:
    lines = Lines()
    task = asyncio.create_task(lines.watch.run())
    await eventually_async(lambda: len(lines.opened) == 2)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert all(line.closed for line in lines.opened)
