"""Claims decide which broker may write the rows of a partition on shared servers.

ClickHouse has no compare-and-swap, but a view can check an insert before it is stored. Each row carries the claim of
its broker, and the view rejects a block whose claim is not the newest of its partition. A broker that starts to lead
takes a claim first. Then it waits until every insert that was in flight has ended, because such an insert may have been
checked before the claim existed. Later inserts from a paused broker or a slow network are rejected as a whole. So when
the new leader reads the end of the log, no other broker can add rows.

A claim is the leader epoch and a number that increases within it. So a broker that restarts under the same epoch has
another claim than its previous process. A claim of an older epoch is rejected.

Claims are stored by topic id, because a topic that is created again starts with the first epoch. A deleted topic gets
one more row (`DELETED_TOPIC`). It rejects every write and claim, however late the last leader wakes up. The row expires
later (see `schema`).

All of this requires one server process per address, because that process must know all inserts in flight.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from typing import NamedTuple

import pyarrow as pa

from tidemill.model.errors import NotLeaderOrFollower
from tidemill.streams.clickhouse.engine import Engine
from tidemill.streams.clickhouse.schema import DELETED_TOPIC, WHOLE_TOPIC
from tidemill.streams.clickhouse.statements import PartitionRef, listed, of_topic, text

NUMBER_BITS = 32
SINCE_S = 1_700_000_000
"""Claim numbers count seconds from here, which lasts for more than a century."""
INSERTS = "tidemill-%"
"""The query ids of all record inserts match this pattern."""
PATIENCE_S = 5.0
LOOK_S = 0.05


class Wish(NamedTuple):
    """A broker's request to write a partition under a leader epoch."""

    place: PartitionRef
    epoch: int


def claim_after(known: int | None, epoch: int, now_s: int) -> int | None:
    """Return the claim after the newest one, or None when the epoch is over or the topic was deleted."""
    first = (epoch << NUMBER_BITS) + max(0, now_s - SINCE_S)
    if known is None:
        return first
    if known == DELETED_TOPIC or known >> NUMBER_BITS > epoch:
        return None
    return max(first, known + 1)


class Claims:
    """The claims on one server."""

    def __init__(self, engine: Engine, server: int, prefix: str) -> None:
        self._engine = engine
        self._server = server
        self._tokens = (f"{prefix}claims-{server}-{number}" for number in count())

    async def newest(self, places: Iterable[PartitionRef]) -> dict[PartitionRef, int]:
        """Return the valid claim of each partition: DELETED_TOPIC where the topic was deleted."""
        wanted = set(places)
        whole = {PartitionRef(each.topic, WHOLE_TOPIC) for each in wanted}
        found = await self._engine.query(
            "SELECT topic, partition, topic_id, max(claim) AS claim FROM claims "
            f"WHERE (topic, partition) IN ({listed(wanted | whole)}) GROUP BY topic, partition, topic_id",
            server=self._server,
        )
        known = {
            PartitionRef(row["topic"].decode(), row["partition"], row["topic_id"].decode()): row["claim"]
            for row in found.to_pylist()
        }
        newest: dict[PartitionRef, int] = {}
        for each in wanted:
            # A claim from before topic ids were stored counts too.
            same = (each, each._replace(topic_id=""), each._replace(partition=WHOLE_TOPIC))
            claims = [known[place] for place in same if place in known]
            if claims:
                newest[each] = max(claims)
        return newest

    async def take(self, wishes: Sequence[Wish], now_s: int) -> list[int | NotLeaderOrFollower]:
        """Take a claim for each wish. When this returns, no broker without one of these claims adds rows."""
        known = await self.newest(wish.place for wish in wishes)
        taken = {wish.place: claim_after(known.get(wish.place), wish.epoch, now_s) for wish in wishes}
        await self._write({place: claim for place, claim in taken.items() if claim is not None})
        await self._settle()
        return [_or_refusal(taken[wish.place], wish) for wish in wishes]

    async def mark_deleted(self, topic: str, topic_id: str) -> None:
        """Reject all writes to a deleted topic. When this returns, no write is in flight."""
        await self._write({PartitionRef(topic, WHOLE_TOPIC, topic_id): DELETED_TOPIC})
        await self._settle()
        where = f"topic = {text(topic)} AND partition != {WHOLE_TOPIC}{of_topic(topic_id)}"
        await self._engine.command(f"DELETE FROM claims WHERE {where}", server=self._server)

    async def _write(self, taken: Mapping[PartitionRef, int]) -> None:
        if not taken:
            return
        rows = pa.record_batch(
            {
                "topic": pa.array([each.topic for each in taken], pa.string()),
                "partition": pa.array([each.partition for each in taken], pa.int32()),
                "topic_id": pa.array([each.topic_id for each in taken], pa.string()),
                "claim": pa.array(list(taken.values()), pa.int64()),
            }
        )
        await self._engine.insert("claims", rows, token=next(self._tokens), server=self._server)

    async def _settle(self) -> None:
        """Wait until all current inserts have ended. Slow ones are killed."""
        waited_s = 0.0
        running = await self._running(f"query_id LIKE {text(INSERTS)}")
        while running and waited_s < PATIENCE_S:
            await asyncio.sleep(LOOK_S)
            waited_s += LOOK_S
            running = await self._running(f"query_id IN ({', '.join(map(text, running))})")
        if running:
            ids = ", ".join(map(text, running))
            await self._engine.command(f"KILL QUERY WHERE query_id IN ({ids}) SYNC", server=self._server)

    async def _running(self, condition: str) -> list[str]:
        found = await self._engine.query(
            f"SELECT query_id FROM system.processes WHERE {condition}", server=self._server
        )
        return [each.decode() for each in found["query_id"].to_pylist()]


def _or_refusal(claim: int | None, wish: Wish) -> int | NotLeaderOrFollower:
    if claim is None:
        topic, partition, _ = wish.place
        return NotLeaderOrFollower(
            f"{topic}-{partition} was taken over by another broker; refresh the metadata and retry"
        )
    return claim
