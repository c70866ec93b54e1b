"""Inserts that a server refuses in part or in doubt."""

import asyncio
import itertools
from typing import Any

from tidemill.model.errors import KafkaStorageError, NotLeaderOrFollower
from tidemill.records.build import NewRecord, build_batch
from tidemill.records.header import read_header
from tidemill.streams.clickhouse.committer import BrokerRun, Committer
from tidemill.streams.clickhouse.errors import EngineRefused, EngineUncertain
from tidemill.streams.clickhouse.rows import BatchRows
from tidemill.streams.clickhouse.schema import TAKEN_OVER
from tidemill.streams.clickhouse.statements import PartitionRef
from tidemill.streams.clickhouse.url import Server, ServerLayout


class Servers:
    """Stands for the engine: refuses as the view does, and may lose answers of what it stores."""

    layout = ServerLayout((Server("one", 8123, 0, 99),))

    def ownership(self, _server: int) -> int:
        return 0

    def __init__(self, newest: dict[PartitionRef, int], *, lost: int) -> None:
        self.newest_claims = newest
        self.taken_over: dict[PartitionRef, int] = {}
        self.stored: dict[str, list[PartitionRef]] = {}
        self._lost = lost

    async def insert(self, _table: str, rows: Any, *, token: str, server: int, query_id: str) -> None:
        assert (server, query_id.startswith(token)) == (0, True)
        claims = {
            PartitionRef(row["topic"], row["partition"], row["topic_id"]): row["claim"] for row in rows.to_pylist()
        }
        if any(self.newest_claims[place] != claim for place, claim in claims.items()):
            raise EngineRefused(f"ClickHouse rejected the statement with code 395: {TAKEN_OVER}")
        self.stored.setdefault(token, list(claims))
        if self._lost:
            self._lost -= 1
            self.newest_claims.update(self.taken_over)
            raise EngineUncertain("the answer was lost")

    async def newest(self, places: Any) -> dict[PartitionRef, int]:
        return {place: self.newest_claims[place] for place in places}


A, B = PartitionRef("a", 0, "x"), PartitionRef("b", 1, "y")


def entry(place: PartitionRef, claim: int) -> BatchRows:
    batch = bytes(build_batch([NewRecord(None, b"v", timestamp=1)]))
    return BatchRows(place, read_header(batch), batch, 2**31, claim)


async def store(servers: Servers, *entries: BatchRows) -> list[BaseException | None]:
    engine: Any = servers
    committer = Committer(engine, 0, engine, lambda: 1, BrokerRun("0", "run"))
    results = await asyncio.gather(*(committer.store([each]) for each in entries), return_exceptions=True)
    await committer.close()
    return results


async def test_a_lost_partition_is_rejected_and_the_others_are_stored() -> None:
    servers = Servers({A: 5, B: 7}, lost=0)
    gone, fine = await store(servers, entry(A, 4), entry(B, 7))
    assert isinstance(gone, NotLeaderOrFollower)
    assert fine is None
    assert list(servers.stored.values()) == [[B]]


async def test_an_insert_in_doubt_that_is_refused_later_is_stored_once() -> None:
    """The first attempt was stored and its answer lost; then another broker took a part of it over."""
    servers = Servers({A: 4, B: 7}, lost=1)
    servers.taken_over = {A: 5}
    gone, fine = await store(servers, entry(A, 4), entry(B, 7))
    assert isinstance(gone, NotLeaderOrFollower), "the new leader has the record, and the producer will hear so from it"
    assert fine is None
    assert list(servers.stored.values()) == [[A, B]], "the token counted once"


async def test_a_refusal_without_a_reason_ends() -> None:
    class Odd(Servers):
        async def newest(self, places: Any) -> dict[PartitionRef, int]:
            return dict(zip(places, itertools.repeat(4)))

    (error,) = await store(Odd({A: 5}, lost=0), entry(A, 4))
    assert isinstance(error, KafkaStorageError)


async def test_a_partition_whose_rows_are_rejected_fails_alone() -> None:
    class Strict(Servers):
        async def insert(self, table: str, rows: Any, *, token: str, server: int, query_id: str) -> None:
            if any(row["topic"] == "a" for row in rows.to_pylist()):
                rejected = EngineRefused("ClickHouse rejected the statement with code 117: incorrect data")
                rejected.reason = 117
                raise rejected
            await super().insert(table, rows, token=token, server=server, query_id=query_id)

    places = [PartitionRef("b", number, "y") for number in range(4)]
    servers = Strict({A: 4, **dict.fromkeys(places, 7)}, lost=0)
    bad, *fine = await store(servers, entry(A, 4), *(entry(each, 7) for each in places))
    assert isinstance(bad, EngineRefused)
    assert fine == [None] * 4
    assert sorted(place for stored in servers.stored.values() for place in stored) == places


async def test_a_server_that_rejects_everything_is_asked_once() -> None:
    asked = []

    class Full(Servers):
        async def insert(self, _table: str, rows: Any, *, token: str, server: int, query_id: str) -> None:
            asked.append(token)
            full = EngineRefused("ClickHouse rejected the statement with code 243: no space")
            full.reason = 243
            raise full

    results = await store(Full({A: 4, B: 7}, lost=0), entry(A, 4), entry(B, 7))
    assert [type(each) for each in results] == [EngineRefused, EngineRefused]
    assert len(asked) == 1
