"""A partial partition: two brokers no longer reach the third, which has its session and reaches both of them."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from tests.integration.health import health_at
from tests.support.cluster_processes import Brokers, running_brokers
from tests.support.metrics import scraped
from tests.support.postgres import free_port
from tests.support.waiting import eventually

PIECE_BYTES = 64 * 1024
REASON = 'tidemill_degraded{reason="peers_missing"}'


class BlockableProxy:
    """Forwards connections from one port to another while it is open."""

    def __init__(self, target: int) -> None:
        self.port = free_port()
        self._target = target
        self._open = True
        self._links: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._serve(),), daemon=True)

    @contextmanager
    def running(self) -> Iterator["BlockableProxy"]:
        self._thread.start()
        try:
            yield self
        finally:
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join(10)

    def block(self, *, blocked: bool) -> None:
        """Cut all connections and refuse new ones; or forward again."""
        self._loop.call_soon_threadsafe(self._set, not blocked)

    def _set(self, is_open: bool) -> None:
        self._open = is_open
        for writer in self._links if not is_open else ():
            writer.transport.abort()

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._connected, "127.0.0.1", self.port)
        await self._stop.wait()
        server.close()
        self._set(is_open=False)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self._open:
            writer.transport.abort()
            return
        with suppress(OSError):
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
            self._links |= {writer, far_writer}
            with suppress(OSError, asyncio.CancelledError):
                await asyncio.gather(_copy(reader, far_writer), _copy(far_reader, writer))
            self._links -= {writer, far_writer}


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(PIECE_BYTES):
            writer.write(data)
            await writer.drain()
    writer.close()


def http(brokers: Brokers, number: int) -> str:
    return f"http://{brokers.servers[number]['http']}"


def degraded(brokers: Brokers) -> list[float]:
    """Whether each broker is degraded by missing peers."""
    return [scraped(http(brokers, number))[REASON] for number in (1, 2, 3)]


def test_the_broker_that_others_do_not_reach_is_degraded_until_they_do() -> None:
    with running_brokers(3, {"tidemill.tend.interval.ms": "200"}, http="127.0.0.1:0") as brokers:
        brokers.stop(3)
        with BlockableProxy(int(brokers.address(3).rpartition(":")[2])).running() as proxy:
            brokers.start(3, advertise=f"127.0.0.1:{proxy.port}")
            eventually(
                lambda: all(scraped(http(brokers, number))["tidemill_brokers"] == 3 for number in (1, 2, 3)),
                "a broker is missing",
            )
            assert degraded(brokers) == [0, 0, 0]
            proxy.block(blocked=True)
            eventually(lambda: degraded(brokers)[2] == 1, "the broker is not degraded", interval_s=0.5)
            assert degraded(brokers) == [0, 0, 1]
            assert [scraped(http(brokers, number))["tidemill_peers_missing"] for number in (1, 2, 3)] == [1, 1, 0]
            peers = health_at(http(brokers, 3))["peers"]
            assert peers["state"] == "degraded"
            assert "brokers 1, 2 cannot reach it" in str(peers["reasons"])
            assert health_at(http(brokers, 3))["member"], "it still has its session"
            proxy.block(blocked=False)
            eventually(lambda: degraded(brokers) == [0, 0, 0], "the state does not end", interval_s=0.5)
