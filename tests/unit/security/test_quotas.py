"""Quotas in coordination: brokers agree on them, and damaged entries do no harm."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.waiting import eventually_async

from tidemill.cluster.local import LocalCoordination
from tidemill.model.errors import InvalidRequest
from tidemill.security.core.quotas import QuotaFilter, QuotaKind, QuotaTable, entity_id, parse_entity
from tidemill.security.directory import Directory
from tidemill.security.quotas import QUOTAS, Quotas
from tidemill.supervision.supervisor import Supervisor

ANN = parse_entity([("user", "ann")])
EVERY = QuotaFilter({}, frozenset(), is_strict=False)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[LocalCoordination]:
    opened = await LocalCoordination.open(tmp_path)
    yield opened
    await opened.close()


async def started(store: LocalCoordination, tables: list[QuotaTable] | None = None) -> Quotas:
    made = Quotas(store, (tables if tables is not None else []).append)
    await made.start(Supervisor())
    return made


async def test_every_broker_follows_a_change(store: LocalCoordination) -> None:
    tables: list[QuotaTable] = []
    mine, other = await started(store), await started(store, tables)
    await mine.alter(ANN, [("producer_byte_rate", 10.0)], validate_only=False)
    assert mine.find(EVERY) == [(ANN, {QuotaKind.PRODUCE: 10.0})]
    await eventually_async(lambda: bool(tables) and tables[-1].quotas == {ANN: {QuotaKind.PRODUCE: 10.0}})
    version = mine.version
    await other.alter(ANN, [("producer_byte_rate", None), ("consumer_byte_rate", 5.0)], validate_only=False)
    await eventually_async(lambda: mine.find(EVERY) == [(ANN, {QuotaKind.FETCH: 5.0})])
    assert mine.version > version
    for each in (mine, other):
        await each.stop()


async def test_all_changes_of_an_entity_are_made_or_none(store: LocalCoordination) -> None:
    quotas = await started(store)
    with pytest.raises(InvalidRequest, match="greater than 0"):
        await quotas.alter(ANN, [("producer_byte_rate", 10.0), ("consumer_byte_rate", 0.0)], validate_only=False)
    with pytest.raises(InvalidRequest, match="twice"):
        await quotas.alter(ANN, [("producer_byte_rate", 1.0), ("producer_byte_rate", None)], validate_only=False)
    assert quotas.find(EVERY) == []
    await quotas.stop()


async def test_entries_that_cannot_be_read_are_left_out_and_replaced(store: LocalCoordination) -> None:
    raw = Directory(store, QUOTAS)
    await raw.put("nonsense", b"{}")
    await raw.put(entity_id(ANN), b"nonsense")
    quotas = await started(store)
    assert quotas.find(EVERY) == []
    await quotas.alter(ANN, [("producer_byte_rate", 10.0)], validate_only=False)
    assert quotas.find(EVERY) == [(ANN, {QuotaKind.PRODUCE: 10.0})]
    await quotas.stop()
