"""Claims: who may write the rows of a partition, where several brokers share servers.

ClickHouse has no compare-and-put, but an insert can be made to look before it is stored. Each row comes in with the
claim under which its broker writes, and a view refuses a block with a claim that is not the newest of its partition.
A broker that begins to lead takes a claim first. Then it waits until every insert has ended that was under way: that
one may have looked before the claim was there. What comes later, from a broker that was paused or a network that held
it back, is refused as a whole. So when the new leader reads where the log ends, nothing can be added by anybody else.

A claim is the leader epoch and a number that grows within it: a broker that starts again under the same epoch has
another claim than the process before it. A claim of an epoch that is over is refused.

Claims are kept by the topic's id, since a topic that is made again begins with the first epoch. A topic that is deleted
is buried: one more row says that nobody may write or claim it any more, however late its last leader wakes up. The row
goes after a while (see `schema`).

This holds for one server at each address: one process knows of all inserts under way.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from typing import NamedTuple

import pyarrow as pa

from tidemill.model.errors import NotLeaderOrFollower
from tidemill.streams.clickhouse.engine import Engine
from tidemill.streams.clickhouse.schema import BURIED, WHOLE_TOPIC
from tidemill.streams.clickhouse.statements import PartitionRef, listed, of_topic, text

NUMBER_BITS = 32
SINCE_S = 1_700_000_000
"""Numbers count seconds from here: they last for more than a century."""
INSERTS = "tidemill-%"
"""How the names of all inserts of records begin."""
PATIENCE_S = 5.0
LOOK_S = 0.05


class Wish(NamedTuple):
    """A broker wants to write a partition under a leader epoch."""

    place: PartitionRef
    epoch: int


def claim_after(known: int | None, epoch: int, now_s: int) -> int | None:
    """The claim that comes after the newest one; None when the epoch is over, or the topic was deleted."""
    first = (epoch << NUMBER_BITS) + max(0, now_s - SINCE_S)
    if known is None:
        return first
    if known == BURIED or known >> NUMBER_BITS > epoch:
        return None
    return max(first, known + 1)


class Claims:
    """The claims on one server."""

    def __init__(self, engine: Engine, server: int, prefix: str) -> None:
        self._engine = engine
        self._server = server
        self._tokens = (f"{prefix}claims-{server}-{number}" for number in count())

    async def newest(self, places: Iterable[PartitionRef]) -> dict[PartitionRef, int]:
        """The claim that counts, of each of these partitions; BURIED where its topic was deleted."""
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
            # A claim from before ids were kept counts too.
            same = (each, each._replace(topic_id=""), each._replace(partition=WHOLE_TOPIC))
            claims = [known[place] for place in same if place in known]
            if claims:
                newest[each] = max(claims)
        return newest

    async def take(self, wishes: Sequence[Wish], now_s: int) -> list[int | NotLeaderOrFollower]:
        """A claim for each wish; when this returns, nobody without one of them adds rows any more."""
        known = await self.newest(wish.place for wish in wishes)
        taken = {wish.place: claim_after(known.get(wish.place), wish.epoch, now_s) for wish in wishes}
        await self._write({place: claim for place, claim in taken.items() if claim is not None})
        await self._settle()
        return [_or_refusal(taken[wish.place], wish) for wish in wishes]

    async def bury(self, topic: str, topic_id: str) -> None:
        """Nobody may write the partitions of this topic, and nobody does any more when this returns."""
        await self._write({PartitionRef(topic, WHOLE_TOPIC, topic_id): BURIED})
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
        """Return when the inserts have ended that are under way now; the slow ones are ended."""
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
        return NotLeaderOrFollower(f"{topic}-{partition} was taken over by another broker")
    return claim
