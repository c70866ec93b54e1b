"""Fetch sessions as a table of rules."""

from collections.abc import AsyncIterator, Iterable
from typing import TypeVar

import pytest

from tidemill.model.errors import FetchSessionIdNotFound, FetchSessionTopicIdError, InvalidFetchSessionEpoch
from tidemill.servers.kafka import fetch_sessions
from tidemill.servers.kafka.fetch_sessions import FetchedPartition, FetchSession, FetchSessions
from tidemill.wire.kafka.fetch import FetchOutcome, FetchPartition, FetchRequest

VERSION = 11
T = TypeVar("T")


def ask(
    session_id: int, epoch: int, partitions: dict[int, int] | None = None, forgotten: list[int] | None = None
) -> FetchRequest:
    wanted = [FetchPartition(index, -1, offset, 1000) for index, offset in (partitions or {}).items()]
    topics = [("t", wanted)] if wanted else []
    return FetchRequest(-1, 0, 1, 1000, False, session_id, epoch, list(topics), [("t", forgotten)] if forgotten else [])


async def without_pauses(items: Iterable[T]) -> AsyncIterator[T]:
    for item in items:
        yield item


async def begin(
    table: FetchSessions, request: FetchRequest, version: int, now: float
) -> tuple[FetchSession | None, list[FetchedPartition]]:
    return await table.begin(request, version, now, without_pauses)


def news(session: FetchSession, outcomes: Iterable[tuple[str, FetchOutcome]]) -> list[int]:
    return [outcome.partition for topic, outcome in outcomes if session.is_news(topic, outcome)]


def fresh() -> FetchSessions:
    ids = iter(range(100, 10_000))
    return FetchSessions(lambda: next(ids))


def offsets(wanted: list[FetchedPartition]) -> dict[int, int]:
    return {each.partition.partition: each.partition.offset for each in wanted}


async def test_no_session() -> None:
    table = fresh()
    session, wanted = await begin(table, ask(0, -1, {0: 5}), VERSION, 0.0)
    assert session is None
    assert offsets(wanted) == {0: 5}
    assert len(table) == 0


async def test_the_life_of_a_session() -> None:
    table = fresh()
    session, _ = await begin(table, ask(0, 0, {0: 0, 1: 0}), VERSION, 0.0)
    assert session is not None
    _, wanted = await begin(table, ask(session.session_id, 1, {1: 7, 2: 3}, forgotten=[0]), VERSION, 1.0)
    assert offsets(wanted) == {1: 7, 2: 3}
    _, wanted = await begin(table, ask(session.session_id, 2), VERSION, 2.0)
    assert offsets(wanted) == {1: 7, 2: 3}
    closing, wanted = await begin(table, ask(session.session_id, -1), VERSION, 3.0)
    assert closing is None
    assert wanted == []
    assert len(table) == 0


async def test_errors() -> None:
    table = fresh()
    session, _ = await begin(table, ask(0, 0, {0: 0}), VERSION, 0.0)
    assert session is not None
    with pytest.raises(FetchSessionIdNotFound):
        await begin(table, ask(7, 1), VERSION, 0.0)
    for epoch in (2, 5):
        with pytest.raises(InvalidFetchSessionEpoch):
            await begin(table, ask(session.session_id, epoch), VERSION, 0.0)
    with pytest.raises(FetchSessionTopicIdError):
        await begin(table, ask(session.session_id, 1), 13, 0.0)


async def test_a_full_fetch_takes_the_place_of_the_old_session() -> None:
    table = fresh()
    first, _ = await begin(table, ask(0, 0, {0: 0}), VERSION, 0.0)
    assert first is not None
    second, _ = await begin(table, ask(first.session_id, 0, {0: 0}), VERSION, 0.0)
    assert second is not None
    assert second.session_id != first.session_id
    assert len(table) == 1


async def test_the_epoch_wraps_to_1() -> None:
    table = fresh()
    session, _ = await begin(table, ask(0, 0, {0: 0}), VERSION, 0.0)
    assert session is not None
    session.epoch = 2**31 - 1
    await begin(table, ask(session.session_id, 2**31 - 1), VERSION, 0.0)
    await begin(table, ask(session.session_id, 1), VERSION, 0.0)


async def test_only_changes_are_sent_and_partitions_that_gave_records_go_last() -> None:
    table = fresh()
    session, _ = await begin(table, ask(0, 0, {0: 0, 1: 0, 2: 0}), VERSION, 0.0)
    assert session is not None
    quiet = [("t", FetchOutcome(index, 0, 10, 10, 0)) for index in range(3)]
    assert news(session, quiet) == [0, 1, 2]
    assert news(session, quiet) == []
    grown = [("t", FetchOutcome(0, 0, 11, 11, 0, None, [b"x"], 1)), *quiet[1:]]
    assert news(session, grown) == [0]
    assert [each.partition.partition for each in session.wanted()] == [1, 2, 0]
    failed = [("t", FetchOutcome(1, 3))]
    assert news(session, failed) == news(session, failed) == [1]


async def test_the_table_is_bounded_and_unused_sessions_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_sessions, "SESSIONS_MAX", 3)
    table = fresh()
    for second in range(3):
        await begin(table, ask(0, 0, {0: 0}), VERSION, float(second))
    refused, wanted = await begin(table, ask(0, 0, {0: 9}), VERSION, 10.0)
    assert refused is None
    assert offsets(wanted) == {0: 9}
    taken, _ = await begin(table, ask(0, 0, {0: 0}), VERSION, fetch_sessions.UNUSED_S + 1)
    assert taken is not None
    assert len(table) == 3
