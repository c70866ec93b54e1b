"""Ranges that move to a replica of a ClickHouse server: the stores of several brokers over three fronts.

The fronts emulate replicated tables (tests/support/keeper_emulation.py).
"""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import uuid4

import pytest
from tests.support.clickhouse import Server, running
from tests.support.waiting import eventually_async

from tidemill.model.errors import KafkaStorageError
from tidemill.model.topic_settings import parse
from tidemill.records.build import NewRecord, build_batch
from tidemill.records.header import place, read_header
from tidemill.streams.clickhouse import BrokerRun, ClickHouseStore, Engine
from tidemill.streams.clickhouse import parse as parse_url
from tidemill.streams.clickhouse.errors import EngineError
from tidemill.streams.clickhouse.log import ClickHouseLog

SETTINGS = parse({})
WAIT_S = 60.0
TOPIC_ID = "5d0f5e7e-0000-4000-8000-000000000001"


class StoringBroker:
    """The part of a broker that stores records."""

    def __init__(self, url: str, node: int = 1) -> None:
        self.engine = Engine(parse_url(url, Path()))
        self.store = ClickHouseStore(self.engine, now_ms, BrokerRun(str(node), uuid4().hex))

    async def lead(self, topic: str, epoch: int = 0) -> ClickHouseLog:
        return await self.store.open(topic, 0, SETTINGS, topic_id=TOPIC_ID, leader_epoch=epoch)

    async def owner(self) -> str:
        found = await self.engine.query("SELECT server FROM kafka_partition_mapping")
        name: bytes = found["server"][0].as_py()
        return name.decode()


def now_ms() -> int:
    return time.time_ns() // 1_000_000


async def write(log: ClickHouseLog, value: bytes) -> None:
    batch = build_batch([NewRecord(None, value, timestamp=now_ms())])
    place(batch, 0, log.end_offset, 0)
    await log.append_aside([batch], [read_header(batch)], now_ms())


async def write_again(log: ClickHouseLog, value: bytes) -> int:
    """Write as a producer that retries, and return how many attempts failed."""
    end, failed = time.monotonic() + WAIT_S, 0
    while True:
        try:
            await write(log, value)
        except KafkaStorageError:
            failed += 1
            assert time.monotonic() < end
            await asyncio.sleep(0.1)
        else:
            return failed


@asynccontextmanager
async def storing(url: str, node: int = 1) -> AsyncIterator[StoringBroker]:
    broker = StoringBroker(url, node)
    try:
        yield broker
    finally:
        await broker.store.close()
        await broker.engine.close()


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[list[Server]]:
    with running(tmp_path, 3, keeper=tmp_path / "keeper") as servers:
        yield servers


def url_of(servers: list[Server], takeover_s: int = 1) -> str:
    return f"clickhouse://{'|'.join(each.name for each in servers)}/tidemill?cluster=c&takeover={takeover_s}"


ROWS = "SELECT groupArray((offset, value)) FROM (SELECT * FROM messages WHERE topic = 'orders' ORDER BY offset)"


def rows(*values: str) -> str:
    return "[" + ",".join(f"({offset},'{value}')" for offset, value in enumerate(values)) + "]"


async def test_a_replica_that_lacks_records_does_not_take_over_and_another_one_does(servers: list[Server]) -> None:
    first, second, third = servers
    async with storing(url_of(servers)) as broker:
        log = await broker.lead("orders")
        await write(log, b"a")
        second.fault(behind=1)
        await write(log, b"b")  # two of three replicas have it
        assert second.ask(ROWS) == rows("a")
        first.kill()
        writing = asyncio.create_task(write_again(log, b"c"))
        newest = "SELECT argMax(server, ownership) FROM range_owner"
        await eventually_async(lambda: third.ask(newest) == third.name, "the complete replica takes over")
        second.fault(behind=0)  # of two replicas that are left, both must store an insert
        assert await writing > 0
        assert await broker.owner() == third.name
        assert second.ask(ROWS) == third.ask(ROWS) == rows("a", "b", "c")


@pytest.mark.long
async def test_brokers_agree_on_one_replica(servers: list[Server]) -> None:
    """They name the replicas in different orders, so each would choose another one."""
    first, second, third = servers
    async with (
        storing(url_of([first, second, third])) as one,
        storing(url_of([first, third, second]), 2) as other,
    ):
        orders, stock = await one.lead("orders"), await other.lead("stock")
        await write(orders, b"a")
        await write(stock, b"a")
        first.kill()
        await asyncio.gather(write_again(orders, b"b"), write_again(stock, b"b"))
        owners = {await one.owner(), await other.owner()}
        assert len(owners) == 1
        assert owners < {second.name, third.name}
        for server in (second, third):
            assert server.ask("SELECT max(ownership), count() FROM range_owner") == "2\t2"
            assert server.ask(ROWS) == rows("a", "b")


async def test_an_owner_that_keeper_still_knows_is_not_replaced(servers: list[Server]) -> None:
    first, second, _ = servers
    async with storing(url_of(servers)) as broker:
        orders, stock = await broker.lead("orders"), await broker.lead("stock")
        await write(orders, b"a")
        first.fault(cut=1)
        uncertain = asyncio.create_task(write(orders, b"b"))  # it may be stored, so it is repeated until that is known
        await asyncio.sleep(3)
        with pytest.raises(KafkaStorageError, match="does not answer"):  # at once: the time limit is far shorter
            await asyncio.wait_for(write(stock, b"lost"), 1)
        assert second.ask("SELECT max(ownership) FROM range_owner") == "1"
        first.fault(cut=0)
        await uncertain
        await write_again(stock, b"kept")
        assert await broker.owner() == first.name
        assert second.ask(ROWS) == rows("a", "b")


@pytest.mark.long
async def test_the_old_owner_is_read_only_when_it_returns(servers: list[Server]) -> None:
    first, second, _ = servers
    async with storing(url_of(servers)) as old, storing(url_of(servers), 2) as new:
        stale = await old.lead("orders")
        await write(stale, b"a")
        first.kill()
        fresh = None
        while fresh is None:
            try:
                fresh = await new.lead("orders", epoch=1)
            except EngineError:
                await asyncio.sleep(0.1)
        await write_again(fresh, b"b")
        first.start()
        with pytest.raises(KafkaStorageError):
            await write(stale, b"late")
        assert second.ask(ROWS) == rows("a", "b")
        assert first.ask(ROWS) == rows("a"), "it has nothing that others do not have"
        async with storing(url_of(servers), 3) as restarted:
            assert await restarted.owner() == second.name
            await write(await restarted.lead("orders", epoch=2), b"c")
        assert second.ask(ROWS) == rows("a", "b", "c")


async def test_an_insert_whose_answer_is_lost_with_its_server_is_stored_once(servers: list[Server]) -> None:
    first, second, _ = servers
    async with storing(url_of(servers)) as broker:
        log = await broker.lead("orders")
        await write(log, b"a")
        first.fault(lose=1_000)
        writing = asyncio.create_task(write(log, b"b"))
        await eventually_async(lambda: second.ask(ROWS) == rows("a", "b"), "the replica has the record")
        first.kill()
        await writing
        assert log.end_offset == 2
        await write(log, b"c")
        assert second.ask(ROWS) == rows("a", "b", "c")
