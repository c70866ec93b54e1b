"""Creations and deletions that a broker left unfinished on a shared store: one other broker finishes each of them."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest
from tests.support.postgres import Postgres

from tidemill.model.timeline_errors import TimelineDeleting, TimelineNotReady
from tidemill.supervision.supervisor import Supervisor
from tidemill.timelines.clock import Clock
from tidemill.timelines.core.message import NewMessage
from tidemill.timelines.core.timeline import (
    Create,
    Delete,
    MakeReady,
    Purge,
    Step,
    TimelineInfo,
    TimelineSettings,
    TimelineState,
)
from tidemill.timelines.health import HealthMonitor
from tidemill.timelines.lifecycle import CLAIM_MS, PURGE_STEP, Lifecycle
from tidemill.timelines.postgres import PostgresStore, open_store

DEAD = "a broker that was killed"
DUE_MS = 1_000_000


class Broker:
    """A live broker: its view of the timelines, and the steps that it has taken."""

    def __init__(self, store: PostgresStore, owner: str) -> None:
        self.steps: list[Step] = []
        self._store = store
        guard = HealthMonitor(Clock(), random.Random(1))
        guard.activate(active=True)
        self.life = Lifecycle(self, guard, owner, Supervisor(), gone=lambda _name: None)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def govern(self, step: Step) -> TimelineInfo | None:
        self.steps.append(step)
        return await self._store.govern(step)

    async def look(self) -> None:
        """Read the catalogue, and finish the work that it begins."""
        await self.life.refresh()
        for name in list(self.life.timelines):
            await self.life.removed(name)


@asynccontextmanager
async def world(url: str) -> AsyncIterator[tuple[PostgresStore, Broker, Broker]]:
    store, one, two = await asyncio.gather(*(open_store(url) for _ in range(3)))
    first, second = Broker(one, "one"), Broker(two, "two")
    try:
        yield store, first, second
    finally:
        await first.life.close()
        await second.life.close()
        await asyncio.gather(*(each.close() for each in (store, one, two)))


async def let_claims_expire(url: str) -> None:
    connection = await asyncpg.connect(url)
    await connection.execute("UPDATE tidemill.unfinished SET until = now() - interval '1 second'")
    await connection.close()


async def begin(store: PostgresStore, step: Step) -> TimelineInfo:
    """As a broker that takes this step and claims the rest of the work."""
    timeline = await store.govern(step)
    assert timeline is not None
    assert await store.claim(timeline, DEAD, for_ms=CLAIM_MS)
    return timeline


async def test_a_deletion_of_a_dead_broker_is_finished_by_one_other(postgres: Postgres) -> None:
    url = postgres.new_database()
    async with world(url) as (store, one, two):
        await store.govern(Create("orders"))
        await store.govern(MakeReady("orders"))
        batch = [NewMessage(f"m{number}", DUE_MS, b"x", 1) for number in range(PURGE_STEP)]
        await store.schedule("orders", batch)
        await store.schedule("orders", [message._replace(id=f"n{message.id}") for message in batch])
        await begin(store, Delete("orders"))
        await store.govern(Purge("orders", 10))
        for _ in range(3):
            await asyncio.gather(one.look(), two.look())
        assert one.steps + two.steps == [], "the claim of its broker still holds"
        with pytest.raises(TimelineDeleting):
            await one.life.create("orders", TimelineSettings())

        await let_claims_expire(url)
        one.steps.clear()
        await asyncio.gather(one.look(), two.look())
        taken = [broker for broker in (one, two) if broker.steps]
        assert len(taken) == 1, "one broker takes it over"
        assert len(taken[0].steps) > 1, "in more than one step"
        await asyncio.gather(one.look(), two.look())
        assert (await two.life.create("orders", TimelineSettings(lease_ms=5_000))).is_new


async def test_a_creation_of_a_dead_broker_is_finished_by_one_other(postgres: Postgres) -> None:
    url = postgres.new_database()
    async with world(url) as (store, one, two):
        await begin(store, Create("orders"))
        await asyncio.gather(one.look(), two.look())
        await asyncio.gather(one.look(), two.look())
        assert one.steps + two.steps == []
        with pytest.raises(TimelineNotReady):
            one.life.usable("orders")

        await let_claims_expire(url)
        await asyncio.gather(one.look(), two.look())
        assert one.steps + two.steps == [MakeReady("orders")]
        await asyncio.gather(one.look(), two.look())
        assert one.life.usable("orders").state is two.life.usable("orders").state is TimelineState.READY


async def test_a_broker_that_lost_its_claim_removes_nothing_more(postgres: Postgres) -> None:
    url = postgres.new_database()
    async with world(url) as (store, one, _two):
        await store.govern(Create("orders"))
        deleting = await begin(store, Delete("orders"))
        await let_claims_expire(url)
        assert await one.claim(deleting, "one", for_ms=CLAIM_MS)
        assert not await store.claim(deleting, DEAD, for_ms=CLAIM_MS), "it comes back too late"
        await store.govern(Purge("orders"))
        assert not await one.claim(deleting, "one", for_ms=CLAIM_MS), "there is nothing left to finish"
