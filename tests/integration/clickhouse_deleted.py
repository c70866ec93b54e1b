"""A topic is deleted and created again while a broker is suspended.

Late writes of that broker must not harm the new topic.

The tests use the stores of two brokers over the servers of `test_clickhouse_servers.py`, which runs them. They make the
late writes by hand.
"""

import time
from pathlib import Path
from typing import Protocol
from uuid import uuid4

import pytest
from tests.support.clickhouse import Server

from tidemill.model.errors import KafkaStorageError, NotLeaderOrFollower
from tidemill.model.topic_settings import parse
from tidemill.records.build import NewRecord, build_batch
from tidemill.records.header import place, read_header
from tidemill.streams.clickhouse import BrokerRun, ClickHouseStore, Engine
from tidemill.streams.clickhouse import parse as parse_url
from tidemill.streams.clickhouse.log import ClickHouseLog

OLD, NEW = "5d0f5e7e-0000-4000-8000-000000000001", "5d0f5e7e-0000-4000-8000-000000000002"
SETTINGS = parse({})
LATE_EPOCH = 7
ROWS = "SELECT groupArray((value, topic_id)) FROM (SELECT * FROM messages WHERE topic = '{0}' ORDER BY offset)"


class World(Protocol):
    """Servers, of which the first has partition 0, and their names in brokers' settings."""

    first: Server
    streams: str


class Broker:
    """The part of a broker that stores records."""

    def __init__(self, world: World, node: int) -> None:
        self._engine = Engine(parse_url(world.streams, Path()))
        self.store = ClickHouseStore(self._engine, now_ms, BrokerRun(str(node), uuid4().hex))

    async def lead(self, topic: str, topic_id: str, epoch: int = 0) -> ClickHouseLog:
        return await self.store.open(topic, 0, SETTINGS, topic_id=topic_id, leader_epoch=epoch)

    async def close(self) -> None:
        await self.store.close()
        await self._engine.close()


def now_ms() -> int:
    return time.time_ns() // 1_000_000


async def write(log: ClickHouseLog, value: bytes) -> None:
    batch = build_batch([NewRecord(None, value, timestamp=now_ms())])
    place(batch, 0, log.end_offset, 0)
    await log.append_aside([batch], [read_header(batch)], now_ms())


async def test_late_writes_of_a_broker_do_not_change_a_recreated_topic(world: World) -> None:
    awake, late = Broker(world, 1), Broker(world, 2)
    old = await late.lead("again", OLD, LATE_EPOCH)
    await write(old, b"old")
    # The other broker is suspended. This one deletes the topic and creates it again.
    await awake.store.remove_topic("again", OLD)
    assert world.first.ask("SELECT count() FROM messages WHERE topic = 'again'") == "0"
    new = await awake.lead("again", NEW)
    await write(new, b"new")
    await new.save({"of": "the new one"})
    # The other one continues: its appends, notes, row changes and its part of the deletion are late.
    with pytest.raises(NotLeaderOrFollower):
        await write(old, b"ghost")
    await old.save({"of": "the old one"})
    await old.trim(1, {"of": "the old one"})
    await old.sweep(now_ms())
    await old.truncate(0)
    await old.reset(40)
    await late.store.remove_topic("again", OLD)
    await late.store.remove_topic("again", OLD)
    with pytest.raises(NotLeaderOrFollower):
        await late.lead("again", OLD, LATE_EPOCH + 1)
    # The new topic still has its record, its leader and its notes, and accepts writes.
    await write(new, b"goes on")
    assert world.first.ask(ROWS.format("again")) == f"[('new','{NEW}'),('goes on','{NEW}')]"
    await awake.close()
    next_one = Broker(world, 3)
    again = await next_one.lead("again", NEW, 1)
    assert (again.start_offset, again.end_offset) == (0, 2)
    assert again.saved is not None
    assert again.saved.state == {"of": "the new one"}
    with pytest.raises(KafkaStorageError):
        await write(new, b"closed")
    await late.close()
    await next_one.close()


async def test_a_topic_without_an_id_is_upgraded_and_can_be_deleted(world: World) -> None:
    """Tables of the previous version have rows, claims and notes without an id."""
    broker = Broker(world, 1)
    first = await broker.lead("aged", "", 3)
    await write(first, b"before")
    await first.save({"is": "aged"})
    after = await broker.lead("aged", OLD, 3)
    assert (after.end_offset, after.saved.state if after.saved else None) == (1, {"is": "aged"})
    await write(after, b"after")
    with pytest.raises(NotLeaderOrFollower):
        await broker.lead("aged", OLD, 2)
    assert world.first.ask(ROWS.format("aged")) == f"[('before',''),('after','{OLD}')]"
    await broker.store.remove_topic("aged", OLD)
    for table in ("messages", "partitions"):
        assert world.first.ask(f"SELECT count() FROM {table} WHERE topic = 'aged'") == "0"
    assert world.first.ask("SELECT partition FROM claims WHERE topic = 'aged'") == "-1"
    await broker.close()
