"""One contract for all timeline stores: memory, SQLite, a replicated journal, and a real PostgreSQL."""

import asyncio
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.support.replicated_timelines import JournalWorld

from tidemill.timelines.clock import Clock
from tidemill.timelines.consumer import ConsumerTerms, Granted
from tidemill.timelines.core import backlog, errors
from tidemill.timelines.core.backlog import EMPTY, WINDOWS_MS, Backlog
from tidemill.timelines.core.lease import (
    TOOK_EFFECT,
    Cancel,
    Claim,
    Command,
    CommandOutcome,
    Complete,
    Extend,
    LeaseGrant,
    Move,
    MoveToTimeline,
    Release,
    dead_letter_origin,
    decide,
    take,
)
from tidemill.timelines.core.message import (
    DUE_MS_MAX,
    FIND_BYTES_MAX,
    FIND_LIMIT_MAX,
    KEY_BYTES_MAX,
    MessageStatus,
    NewMessage,
    Scheduled,
    Selection,
    TimedMessage,
    TimelinePosition,
    selected,
    status_of,
)
from tidemill.timelines.core.message_queue import LeaseOrder
from tidemill.timelines.core.recurrence import MissedPolicy, Recurrence
from tidemill.timelines.core.timeline import Alter, Create, Delete, MakeReady, Purge, TimelineSettings, TimelineState
from tidemill.timelines.dispatcher import Dispatcher
from tidemill.timelines.interface import TimelineStore
from tidemill.timelines.measured_store import MeasuredTimelineStore
from tidemill.timelines.memory import MemoryTimelineStore
from tidemill.timelines.postgres import PostgresStore, sort
from tidemill.timelines.postgres import backlog as postgres_backlog
from tidemill.timelines.postgres import open_store as open_postgres
from tidemill.timelines.sqlite import backlog as sqlite_backlog
from tidemill.timelines.sqlite import open_store as open_sqlite

Opening = Callable[[], AbstractAsyncContextManager[TimelineStore]]
NOW = 1_000_000
RULES = [
    Recurrence(every_ms=10, start_ms=NOW).to_text(),
    Recurrence(every_ms=35, start_ms=NOW, missed=MissedPolicy.ALL, left=3).to_text(),
    Recurrence(every_ms=80, start_ms=NOW, missed=MissedPolicy.SKIP, until_ms=NOW + 900).to_text(),
]


@pytest.fixture(
    params=["memory", "measured", "sqlite", "replicated", "replicated-apart", "postgres", "postgres-sorted"]
)
def opening(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Opening:
    url = request.getfixturevalue("postgres").new_database() if request.param.startswith("postgres") else ""
    for name, value in {"FRESH_MIN": 1, "FRESH_PER_PAGE": 0, "NEAR_MS": -1, "STEP_ROWS": 7}.items():
        if request.param == "postgres-sorted":
            monkeypatch.setattr(sort, name, value)

    async def open_one() -> TimelineStore:
        if request.param == "memory":
            return MemoryTimelineStore()
        if request.param == "measured":
            return MeasuredTimelineStore(MemoryTimelineStore(), "memory")
        if request.param == "sqlite":
            return await open_sqlite(tmp_path / "timelines.db")
        if request.param == "replicated":
            return await JournalWorld(tmp_path, 1).start(1)
        if request.param == "replicated-apart":  # the calls are made on a broker that does not lead
            world = JournalWorld(tmp_path, 1)
            await world.start(1)
            return await world.start(2)
        store = await open_postgres(url)
        return store if request.param == "postgres" else always_sorted(store, monkeypatch)

    @asynccontextmanager
    async def opened() -> AsyncIterator[TimelineStore]:
        store = await open_one()
        try:
            yield store
        finally:
            await store.close()

    return opened


def always_sorted(store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> PostgresStore:
    """The store, with all messages put in order as soon as they are there."""
    schedule = store.schedule

    async def schedule_and_sort(timeline: str, messages: Sequence[NewMessage]) -> list[Scheduled]:
        store.sorter.now_ms = 0
        scheduled = await schedule(timeline, messages)
        await store.sorter.finish()
        return scheduled

    monkeypatch.setattr(store, "schedule", schedule_and_sort)
    return store


@pytest.fixture
async def store(opening: Opening) -> AsyncIterator[TimelineStore]:
    """A store with one timeline, `line`."""
    async with opening() as opened:
        await opened.govern(Create("line"))
        await opened.govern(MakeReady("line"))
        yield opened


def new(name: str, due_ms: int = NOW, **values: Any) -> NewMessage:
    return NewMessage(**{"id": name, "due_ms": due_ms, "body": name.encode(), "bucket": 7, **values})


async def everything(store: TimelineStore, now_ms: int = NOW, *, line: str = "line") -> list[TimedMessage]:
    return await store.find(line, now_ms=now_ms, limit=FIND_LIMIT_MAX, bodies=True)


async def leased(store: TimelineStore, name: str, now_ms: int = NOW, *, lease_ms: int = 1000) -> LeaseGrant:
    (message,) = await store.find("line", Selection(ids=(name,)), now_ms=now_ms, limit=1)
    claim = Claim(message.seq, message.version, "worker", now_ms + lease_ms, message.due_ms)
    (lease,) = await store.acquire("line", [claim], now_ms=now_ms)
    assert lease is not None
    return lease


async def test_a_message_comes_back_as_it_was_given(store: TimelineStore) -> None:
    given = new("ä-1", 5, body=b"\x00\xff", key=b"k\x00", bucket=65_535, group="g")
    (answer,) = await store.schedule("line", [given])
    (message,) = await everything(store)
    assert message == TimedMessage(answer.seq, "ä-1", 5, 5, 65_535, "g", None, 0, 1, 0, 2, b"k\x00", b"\x00\xff")
    assert answer == Scheduled("ä-1", answer.seq, 1, 5, False, 5)


async def test_empty_bodies_and_keys_stay_apart_from_none(store: TimelineStore) -> None:
    given = [new("a", body=b"", key=b""), new("b", body=b"", key=None), new("c", body=b"c", key=b"")]
    await store.schedule("line", given)
    found = await everything(store)
    assert [(one.body, one.key) for one in found] == [(b"", b""), (b"", None), (b"c", b"")]


async def test_keys_and_bodies_of_any_size_come_back(store: TimelineStore) -> None:
    draw = random.Random(3)
    sizes = (1, 511, 512, 513, KEY_BYTES_MAX)
    names = [f"ä\u2603'\"\\{key}-{body}" for key in sizes for body in sizes]

    given = [
        new(name, body=draw.randbytes(sizes[index % 5]), key=draw.randbytes(sizes[index // 5]))
        for index, name in enumerate(names)
    ]
    await store.schedule("line", given)
    found = await everything(store)
    assert [(one.id, one.body, one.key) for one in found] == [(one.id, one.body, one.key) for one in given]
    heads = await store.find("line", Selection(ids=tuple(names)), now_ms=NOW, limit=99)
    assert [(one.id, one.body, one.key) for one in heads] == [(one.id, None, one.key) for one in given]


async def test_the_same_id_again_changes_nothing(store: TimelineStore) -> None:
    first, repeated = await store.schedule("line", [new("a", 10), new("a", 20)])
    (again,) = await store.schedule("line", [new("a", 30, body=b"other")])
    assert (first.duplicate, repeated.duplicate, again.duplicate) == (False, True, True)
    assert first.seq == repeated.seq == again.seq
    assert again.due_ms == 10
    assert [(one.due_ms, one.body) for one in await everything(store)] == [(10, b"a")]


async def test_the_id_of_a_cancelled_message_is_free_and_its_number_is_not(store: TimelineStore) -> None:
    (first,) = await store.schedule("line", [new("a")])
    assert await store.settle("line", [Cancel("a")], now_ms=NOW) == [CommandOutcome.DONE]
    (second,) = await store.schedule("line", [new("a")])
    assert not second.duplicate
    assert second.seq > first.seq


async def test_an_empty_batch_is_fine(store: TimelineStore) -> None:
    assert await store.schedule("line", []) == []
    assert await store.acquire("line", [], now_ms=NOW) == []
    assert await store.settle("line", [], now_ms=NOW) == []


async def test_messages_due_at_once_keep_the_order_of_their_batch(store: TimelineStore) -> None:
    names = ["b", "c", "a", "Z", "ä", "😀", '"quoted\\"', "a b", "[1]", "null"]
    await store.schedule("line", [new(name) for name in names])
    assert [one.id for one in await everything(store)] == names


async def test_messages_are_found_in_order_page_by_page(store: TimelineStore) -> None:
    draw = random.Random(3)
    await store.schedule("line", [new(f"m{index:03}", draw.randrange(50)) for index in range(200)])
    whole = await everything(store)
    assert [(one.due_ms, one.seq) for one in whole] == sorted((one.due_ms, one.seq) for one in whole)
    pages: list[TimedMessage] = []
    after: TimelinePosition | None = None
    while page := await store.find("line", now_ms=NOW, limit=7, after=after, bodies=True):
        pages += page
        after = TimelinePosition(page[-1].due_ms, page[-1].seq)
    assert pages == whole


async def test_selections_narrow_by_time_state_bucket_and_id(store: TimelineStore) -> None:
    await store.schedule("line", [new(f"m{index}", index * 100, bucket=index) for index in range(20)])
    await leased(store, "m3", 1000, lease_ms=450)
    whole = await everything(store)
    for selection in (
        Selection(start_ms=200, end_ms=500),
        Selection(status=MessageStatus.AVAILABLE),
        Selection(status=MessageStatus.LEASED),
        Selection(status=MessageStatus.WAITING, end_ms=1500),
        Selection(buckets=((0, 2), (5, 5))),
        Selection(buckets=()),
        Selection(ids=("m1", "m19", "none")),
        Selection(start_ms=300, buckets=((0, 10),), status=MessageStatus.AVAILABLE),
    ):
        expected = [one._replace(body=None) for one in whole if selected(one, selection, 1000)]
        assert await store.find("line", selection, now_ms=1000, limit=100) == expected
        assert await store.tally("line", selection, now_ms=1000) == [len(expected)]


async def test_a_histogram_counts_each_message_in_its_bar(store: TimelineStore) -> None:
    await store.schedule("line", [new(f"m{due}", due) for due in (0, 9, 10, 25, 29, 30)])
    assert await store.tally("line", Selection(0, 30), now_ms=0, bars=3) == [2, 1, 2]
    assert await store.tally("line", Selection(0, 31), now_ms=0, bars=4) == [1, 2, 0, 3]
    assert await store.tally("line", now_ms=0, bars=2) == [6, 0]
    assert await store.tally("line", Selection(5, 5), now_ms=0, bars=2) == [0, 0]


async def test_a_histogram_of_one_state_counts_as_a_list_would(store: TimelineStore) -> None:
    draw = random.Random(5)
    print("seed 5")
    await store.schedule("line", [new(f"m{index}", draw.randrange(2_000), bucket=index % 9) for index in range(300)])
    late = Selection(end_ms=400)
    for message in (await store.find("line", late, now_ms=500, limit=40))[::2]:
        claim = Claim(message.seq, message.version, "w", 500 + draw.randrange(1, 900), message.due_ms)
        assert await store.acquire("line", [claim], now_ms=500) != [None]
    whole = await everything(store)
    for now_ms in (500, 900, 1_400):
        for status in (None, *MessageStatus):
            selection = Selection(300, 1_700, status)
            chosen = [one for one in whole if selected(one, selection, now_ms)]
            expected = [sum(300 + 200 * bar <= one.due_ms < 500 + 200 * bar for one in chosen) for bar in range(7)]
            assert await store.tally("line", selection, now_ms=now_ms, bars=7) == expected
            capped = await store.tally("line", selection, now_ms=now_ms, bars=7, bar_max=11)
            assert capped == [min(11, count) for count in expected]


async def test_the_backlogs_count_every_message_of_every_usable_timeline_once(store: TimelineStore) -> None:
    draw = random.Random(7)
    print("seed 7")
    for name in ("other", "empty", "unfinished", "going"):
        await store.govern(Create(name))
        if name != "unfinished":
            await store.govern(MakeReady(name))
    await store.govern(Delete("going"))
    edges = [NOW - 1, NOW, NOW + 1, *(NOW + each + more for each in WINDOWS_MS for more in (0, 1)), DUE_MS_MAX]
    dues = [*edges, *(NOW + draw.randrange(-5_000, 2 * WINDOWS_MS[-1]) for _ in range(200))]
    await store.schedule("line", [new(f"m{index}", due_ms) for index, due_ms in enumerate(dues)])
    await store.schedule("other", [new("one", NOW + 5), new("two", NOW - 5)])
    for message in (await store.find("line", Selection(end_ms=NOW + 1), now_ms=NOW, limit=100))[::2]:
        claim = Claim(message.seq, message.version, "w", NOW + draw.randrange(1, 5_000), message.due_ms)
        assert await store.acquire("line", [claim], now_ms=NOW) != [None]
    for now_ms in (NOW, NOW + 2_500):  # at the second time some leases have ended
        found = await store.backlogs(now_ms=now_ms)
        assert found == {
            name: backlog_by_hand(await everything(store, now_ms, line=name), now_ms)
            for name in ("line", "other", "empty")
        }
        assert found["line"].total == len(dues)
        assert found["empty"] == EMPTY


def backlog_by_hand(messages: Sequence[TimedMessage], now_ms: int) -> Backlog:
    states = [(status_of(one.due_ms, one.holder, now_ms), one.due_ms - now_ms) for one in messages]
    waits_ms = [wait_ms for status, wait_ms in states if status is MessageStatus.WAITING]
    ends_ms = (0, *WINDOWS_MS, DUE_MS_MAX)
    windows = [sum(low < wait_ms <= high for wait_ms in waits_ms) for low, high in pairwise(ends_ms)]
    counts = Counter(status for status, _ in states)
    return Backlog(counts[MessageStatus.AVAILABLE], counts[MessageStatus.LEASED], tuple(windows))


async def test_the_numbers_of_a_backlog_are_bounded(store: TimelineStore, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (backlog, sqlite_backlog, postgres_backlog):
        monkeypatch.setattr(module, "COUNTED_MAX", 3)
    names = [f"m{index}" for index in range(40)]
    await store.schedule("line", [new(name, NOW + 500 * (index % 2)) for index, name in enumerate(names)])
    for name in names[:10:2]:
        await leased(store, name)
    assert (await store.backlogs(now_ms=NOW))["line"] == Backlog(3, 3, (3, 0, 0, 0, 0, 0, 0))


async def test_large_bodies_come_in_several_answers(store: TimelineStore) -> None:
    size = FIND_BYTES_MAX // 2 - 1
    await store.govern(Alter("line", TimelineSettings(body_bytes_max=2 * FIND_BYTES_MAX)))
    for name in ("a", "b", "c"):
        await store.schedule("line", [new(name, body=bytes(size))])
    first = await store.find("line", now_ms=NOW, limit=10, bodies=True)
    assert [one.id for one in first] == ["a", "b"]
    rest = await store.find("line", now_ms=NOW, limit=10, bodies=True, after=TimelinePosition(NOW, first[-1].seq))
    assert [one.id for one in rest] == ["c"]
    assert len(await store.find("line", now_ms=NOW, limit=10)) == 3


async def test_a_lease_moves_the_message_and_can_be_taken_once(store: TimelineStore) -> None:
    (kept,) = await store.schedule("line", [new("a")])
    claims = [Claim(kept.seq, 1, "w1", NOW + 100, NOW), Claim(kept.seq, 1, "w2", NOW + 100, NOW)]
    lease, lost = await store.acquire("line", claims, now_ms=NOW)
    assert lease == LeaseGrant(kept.seq, 2, "w1", NOW + 100, 1)
    assert lost is None
    (message,) = await everything(store)
    assert (message.due_ms, message.scheduled_ms, message.holder, message.token) == (NOW + 100, NOW, "w1", 2)
    assert status_of(message.due_ms, message.holder, NOW) is MessageStatus.LEASED
    assert await store.acquire("line", [Claim(kept.seq, 2, "w2", NOW + 200, NOW + 100)], now_ms=NOW + 99) == [None]
    (second,) = await store.acquire("line", [Claim(kept.seq, 2, "w2", NOW + 200, NOW + 100)], now_ms=NOW + 100)
    assert second == LeaseGrant(kept.seq, 3, "w2", NOW + 200, 2)


async def test_no_message_is_leased_earlier_than_allowed(store: TimelineStore) -> None:
    (kept,) = await store.schedule("line", [new("a", NOW + 10)])
    claim = Claim(kept.seq, 1, "w", NOW + 500, NOW + 10)
    assert await store.acquire("line", [claim], now_ms=NOW + 9) == [None]
    assert await store.acquire("line", [claim], now_ms=NOW, early_ms=9) == [None]
    assert (await store.acquire("line", [claim], now_ms=NOW, early_ms=10))[0] is not None
    # A leased message is never taken early: its due time is the end of a lease.
    late = Claim(kept.seq, 2, "x", NOW + 900, NOW + 500)
    assert await store.acquire("line", [late], now_ms=NOW + 499, early_ms=10) == [None]


async def test_b19_a_stale_holder_can_do_nothing(store: TimelineStore) -> None:
    await store.schedule("line", [new("a")])
    old = await leased(store, "a")
    late = old.until_ms
    attempts: list[Command] = [
        Complete(old.seq, old.token),
        Release(old.seq, old.token, 5),
        Extend(old.seq, old.token, late + 10),
    ]
    assert await store.settle("line", attempts, now_ms=late) == [CommandOutcome.STALE] * 3
    fresh = await leased(store, "a", late)
    assert await store.settle("line", attempts, now_ms=late + 1) == [CommandOutcome.STALE] * 3
    assert await store.settle("line", [Complete(fresh.seq, fresh.token)], now_ms=late + 1) == [CommandOutcome.DONE]
    again = [Complete(fresh.seq, fresh.token)]
    assert await store.settle("line", again, now_ms=late + 1) == [CommandOutcome.MISSING]
    assert await everything(store) == []


async def test_release_gives_back_and_extend_holds_longer(store: TimelineStore) -> None:
    await store.schedule("line", [new("a"), new("b")])
    first, second = await leased(store, "a"), await leased(store, "b")
    commands: list[Command] = [Release(first.seq, first.token, NOW + 50), Extend(second.seq, 2, NOW + 5000)]
    assert await store.settle("line", commands, now_ms=NOW + 10) == [CommandOutcome.DONE, CommandOutcome.DONE]
    a, b = await everything(store)
    assert (a.id, a.due_ms, a.holder, a.version, a.scheduled_ms) == ("a", NOW + 50, None, 3, NOW)
    assert (b.id, b.due_ms, b.holder, b.token, b.version) == ("b", NOW + 5000, "worker", second.token, 3)
    # The released one cannot be settled any more; the extended one can, with the same token.
    commands = [Complete(first.seq, first.token), Complete(second.seq, second.token)]
    assert await store.settle("line", commands, now_ms=NOW + 4999) == [CommandOutcome.STALE, CommandOutcome.DONE]


async def test_only_the_owner_moves_and_cancels_and_never_under_a_live_lease(store: TimelineStore) -> None:
    await store.schedule("line", [new("a", group="mine"), new("b", group="mine")])
    for stranger in (Cancel("a", "yours"), Move("a", 5, "yours")):
        assert await store.settle("line", [stranger], now_ms=NOW) == [CommandOutcome.NOT_OWNER]
    lease = await leased(store, "a")
    owner: list[Command] = [Cancel("a", "mine"), Move("a", 5, "mine"), Move("b", NOW + 9, "mine")]
    assert await store.settle("line", owner, now_ms=NOW) == [
        CommandOutcome.LEASED,
        CommandOutcome.LEASED,
        CommandOutcome.DONE,
    ]
    ended = lease.until_ms
    assert await store.settle("line", [Move("a", 77, "mine")], now_ms=ended) == [CommandOutcome.DONE]
    moved = (await everything(store))[0]
    assert (moved.due_ms, moved.scheduled_ms, moved.holder, moved.attempts) == (77, 77, None, 1)
    assert await store.settle("line", [Complete(lease.seq, lease.token)], now_ms=NOW) == [CommandOutcome.STALE]
    commands = [Cancel("a", "mine"), Cancel("a", "mine"), Cancel("none", "mine")]
    outcomes = await store.settle("line", commands, now_ms=NOW)
    assert outcomes == [CommandOutcome.DONE, CommandOutcome.MISSING, CommandOutcome.MISSING]


async def test_a_spent_message_is_buried_in_one_step(store: TimelineStore) -> None:
    await store.govern(Create("dead"))
    await store.govern(MakeReady("dead"))
    await store.schedule("line", [new("a", key=b"k")])
    lease = await leased(store, "a")
    move = MoveToTimeline(lease.seq, lease.token, "dead")
    assert await store.settle("line", [move], now_ms=NOW) == [CommandOutcome.STALE]  # the lease is live
    ended = lease.until_ms
    assert await store.settle("line", [move, move], now_ms=ended) == [CommandOutcome.DONE, CommandOutcome.MISSING]
    assert await everything(store) == []
    (dead,) = await everything(store, line="dead")
    assert (dead.due_ms, dead.attempts, dead.holder, dead.key, dead.body) == (ended, 0, None, b"k", b"a")
    assert dead.id == f"a@line.{lease.seq}"
    with pytest.raises(errors.UnknownTimeline):
        await store.settle("line", [MoveToTimeline(lease.seq, 9, "nowhere")], now_ms=ended)


async def test_a_dead_letter_returns_under_its_old_id(store: TimelineStore) -> None:
    await store.govern(Create("dead"))
    await store.govern(MakeReady("dead"))
    await store.schedule("line", [new("a", key=b"k"), new("b")])
    ended = NOW + 1000
    for lease in (await leased(store, "a"), await leased(store, "b")):
        await store.settle("line", [MoveToTimeline(lease.seq, lease.token, "dead")], now_ms=ended)
    first, second = await everything(store, line="dead", now_ms=ended)
    origin = dead_letter_origin(first.id)
    assert origin == ("line", "a")
    back = MoveToTimeline(first.seq, first.version, "line", "a")
    later = ended + 5
    assert await store.settle("dead", [back, back], now_ms=later) == [CommandOutcome.DONE, CommandOutcome.MISSING]
    (returned,) = await everything(store, now_ms=later)
    assert (returned.id, returned.due_ms, returned.attempts, returned.key, returned.body) == ("a", later, 0, b"k", b"a")
    also = MoveToTimeline(second.seq, second.version, "line", "a")  # this id is in use there now
    assert await store.settle("dead", [also], now_ms=later) == [CommandOutcome.DONE]
    assert [one.id for one in await everything(store, now_ms=later)] == ["a", f"{second.id}@dead.{second.seq}"]
    assert await everything(store, line="dead", now_ms=later) == []


async def test_two_dead_letters_with_one_id_both_return(store: TimelineStore) -> None:
    await store.govern(Create("dead"))
    await store.govern(MakeReady("dead"))
    ended = NOW + 1000
    for _ in range(2):
        await store.schedule("line", [new("a")])
        lease = await leased(store, "a")
        await store.settle("line", [MoveToTimeline(lease.seq, lease.token, "dead")], now_ms=ended)
    dead = await everything(store, line="dead", now_ms=ended)
    back = [MoveToTimeline(one.seq, one.version, "line", "a") for one in dead]
    assert await store.settle("dead", back, now_ms=ended) == [CommandOutcome.DONE] * 2
    assert {one.id for one in await everything(store, now_ms=ended)} == {"a", f"{dead[1].id}@dead.{dead[1].seq}"}


async def test_the_span_of_a_timeline_ends_at_its_first_and_last_message(store: TimelineStore) -> None:
    assert await store.span("line") is None
    await store.schedule("line", [new("a", 50), new("b", 70), new("c", NOW)])
    assert await store.span("line") == (50, NOW)
    await leased(store, "c", lease_ms=500)
    await store.settle("line", [Move("a", 60), Cancel("b")], now_ms=NOW)
    assert await store.span("line") == (60, NOW + 500)
    await store.settle("line", [Move("a", 9 * NOW)], now_ms=NOW)
    assert await store.span("line") == (NOW + 500, 9 * NOW)
    with pytest.raises(errors.UnknownTimeline):
        await store.span("nowhere")


@pytest.mark.parametrize(
    ("message", "error"),
    [
        (new("a", -1), errors.BadDueTime),
        (new("a", DUE_MS_MAX + 1), errors.BadDueTime),
        (new(""), errors.BadMessageId),
        (new("x" * 201), errors.BadMessageId),
        (new("a\x00b"), errors.BadMessageId),
        (new("tab\t"), errors.BadMessageId),
        (new("a", group="g" * 201), errors.BadMessageId),
        (new("a", body=bytes(1024 * 1024 + 1)), errors.BodyTooLarge),
        (new("a", key=bytes(64 * 1024 + 1)), errors.BodyTooLarge),
    ],
)
async def test_a_bad_message_refuses_the_whole_batch(
    store: TimelineStore, message: NewMessage, error: type[Exception]
) -> None:
    with pytest.raises(error):
        await store.schedule("line", [new("good"), message])
    assert await everything(store) == []


async def test_a_batch_has_limits(store: TimelineStore) -> None:
    body = bytes(1024 * 1024)
    for batch in ([new(f"m{index}") for index in range(10_001)], [new(f"m{i}", body=body) for i in range(129)]):
        with pytest.raises(errors.BatchTooLarge):
            await store.schedule("line", batch)
    with pytest.raises(errors.BatchTooLarge):
        await store.settle("line", [Cancel("a")] * 10_001, now_ms=NOW)
    assert await everything(store) == []


async def test_bad_commands_and_claims_change_nothing(store: TimelineStore) -> None:
    await store.schedule("line", [new("a")])
    before = await everything(store)
    seq = before[0].seq
    with pytest.raises(errors.BadDueTime):
        await store.settle("line", [Cancel("a"), Move("a", -5)], now_ms=NOW)
    for claim in (
        Claim(seq, 1, "", NOW + 9, NOW),
        Claim(seq, 1, "w", NOW, NOW),
        Claim(seq, 1, "w", NOW + 10**10, NOW),
    ):
        with pytest.raises(errors.BadLease):
            await store.acquire("line", [claim], now_ms=NOW)
    with pytest.raises(errors.BadLease):
        await store.acquire("line", [Claim(seq, 1, "w", NOW + 9, NOW)], now_ms=NOW, early_ms=60_000)
    with pytest.raises(errors.BatchTooLarge):
        await store.find("line", now_ms=NOW, limit=FIND_LIMIT_MAX + 1)
    assert await everything(store) == before


async def test_the_last_instant_of_the_calendar_can_be_scheduled(store: TimelineStore) -> None:
    await store.schedule("line", [new("a", DUE_MS_MAX), new("b", 0)])
    assert [one.id for one in await everything(store)] == ["b", "a"]


async def test_creating_is_idempotent_and_settings_last(store: TimelineStore) -> None:
    settings = TimelineSettings(lease_ms=5, max_attempts=3, dead_letter="topic:dead")
    first = await store.govern(Create("other", settings))
    assert first is not None
    assert first.state is TimelineState.CREATING
    with pytest.raises(errors.TimelineNotReady):
        await store.schedule("other", [new("a")])
    ready = await store.govern(MakeReady("other"))
    assert await store.govern(Create("other", settings)) == ready
    with pytest.raises(errors.TimelineExists):
        await store.govern(Create("other"))
    altered = await store.govern(Alter("other", TimelineSettings(window_ms=77)))
    catalogue = await store.catalogue()
    assert [one.name for one in catalogue.timelines] == ["line", "other"]
    assert catalogue.timelines[1] == altered
    assert altered is not None
    assert altered.settings.window_ms == 77


@pytest.mark.parametrize(
    ("step", "error"),
    [
        (Create("bad name"), errors.BadTimelineName),
        (Create(".."), errors.BadTimelineName),
        (Create("x" * 250), errors.BadTimelineName),
        (Create("a", TimelineSettings(lease_ms=0)), errors.BadSetting),
        (Create("a", TimelineSettings(max_attempts=3)), errors.BadSetting),
        (Create("a", TimelineSettings(dead_letter="file:x")), errors.BadSetting),
        (Create("a", TimelineSettings(dead_letter="timeline:a")), errors.BadSetting),
        (Alter("none", TimelineSettings()), errors.UnknownTimeline),
        (Delete("none"), errors.UnknownTimeline),
        (Purge("line"), errors.BadSetting),
    ],
)
async def test_bad_steps_are_refused(store: TimelineStore, step: Any, error: type[Exception]) -> None:
    before = await store.catalogue()
    with pytest.raises(error):
        await store.govern(step)
    assert (await store.catalogue()).timelines == before.timelines


async def test_deletion_goes_in_bounded_steps_and_frees_the_name(store: TimelineStore) -> None:
    await store.govern(Create("other"))
    await store.govern(MakeReady("other"))
    await store.schedule("line", [new(f"m{index}") for index in range(25)])
    await store.schedule("other", [new("stays")])
    old = await store.govern(Delete("line"))
    assert old is not None
    for call in (
        store.schedule("line", [new("a")]),
        store.find("line", now_ms=NOW, limit=1),
        store.tally("line", now_ms=NOW),
        store.settle("line", [Cancel("m1")], now_ms=NOW),
        store.acquire("line", [], now_ms=NOW),
        store.govern(Create("line")),
        store.govern(MakeReady("line")),
    ):
        with pytest.raises(errors.TimelineDeleting):
            await call
    assert await store.govern(Delete("line")) == old
    left = [await store.govern(Purge("line", 10)) for _ in range(3)]
    assert [one is None for one in left] == [False, False, True]
    with pytest.raises(errors.UnknownTimeline):
        await store.schedule("line", [new("a")])
    reborn = await store.govern(Create("line"))
    await store.govern(MakeReady("line"))
    assert reborn is not None
    assert reborn.number > old.number
    assert await everything(store) == []
    assert [one.id for one in await everything(store, line="other")] == ["stays"]


async def test_timelines_do_not_see_each_other(store: TimelineStore) -> None:
    await store.govern(Create("other"))
    await store.govern(MakeReady("other"))
    (kept,) = await store.schedule("line", [new("a")])
    (repeated,) = await store.schedule("other", [new("a")])
    assert not repeated.duplicate
    assert await store.acquire("other", [Claim(kept.seq, 1, "w", NOW + 9, NOW)], now_ms=NOW) == [None]
    assert await store.settle("other", [Complete(kept.seq, 1)], now_ms=NOW) == [CommandOutcome.MISSING]
    assert await store.settle("other", [Cancel("a")], now_ms=NOW) == [CommandOutcome.DONE]
    assert len(await everything(store)) == 1


async def test_calls_that_overlap_give_each_message_to_one(store: TimelineStore) -> None:
    kept = await store.schedule("line", [new(f"m{index}") for index in range(100)])
    holders = [f"w{index}" for index in range(8)]
    batches = await asyncio.gather(
        *(store.acquire("line", [Claim(one.seq, 1, who, NOW + 9, NOW) for one in kept], now_ms=NOW) for who in holders)
    )
    winners = [lease for batch in batches for lease in batch if lease is not None]
    assert sorted(lease.seq for lease in winners) == sorted(one.seq for one in kept)
    answers = await asyncio.gather(*(store.schedule("line", [new(f"n{index}")]) for index in range(10)))
    assert len({answer[0].seq for answer in answers}) == 10


async def test_a_bad_call_does_not_affect_the_other_calls(store: TimelineStore) -> None:
    calls = [store.schedule("line", [new(f"m{index}", -1 if index == 3 else NOW)]) for index in range(6)]
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert [isinstance(answer, errors.BadDueTime) for answer in answers] == [index == 3 for index in range(6)]
    assert len(await everything(store)) == 5


async def test_random_commands_come_out_as_the_core_decides(store: TimelineStore) -> None:
    draw = random.Random(11)
    model: dict[int, TimedMessage] = {}
    now_ms = NOW
    for _ in range(60):
        now_ms += draw.randrange(40)
        fresh = [
            new(f"m{draw.randrange(30)}", now_ms + draw.randrange(-20, 60), recurrence=draw.choice(["", *RULES]))
            for _ in range(3)
        ]
        for given, answer in zip(fresh, await store.schedule("line", fresh), strict=True):
            known = {one.id for one in model.values()}
            assert answer.duplicate == (given.id in known)
            if not answer.duplicate:
                body = given.body
                base = (answer.seq, given.id, given.due_ms, given.due_ms, 7, "", None, 0, 1, 0, len(body), None)
                model[answer.seq] = TimedMessage(*base, body, given.recurrence)
        chosen = draw.sample(sorted(model), min(6, len(model)))
        claims = [
            Claim(
                seq,
                model[seq].version - draw.choice([0, 0, 0, 1]),
                f"w{draw.randrange(3)}",
                now_ms + 50,
                model[seq].due_ms - draw.choice([0, 0, 0, 1]),
            )
            for seq in chosen[:3]
        ]
        for claim, lease in zip(claims, await store.acquire("line", claims, now_ms=now_ms), strict=True):
            taken = take(model[claim.seq], claim, now_ms)
            assert (lease is None) == (taken is None)
            if taken is not None:
                model[claim.seq] = taken
        commands = [_any_command(draw, model[seq], now_ms) for seq in chosen]
        outcomes = await store.settle("line", commands, now_ms=now_ms)
        for seq, command, outcome in zip(chosen, commands, outcomes, strict=True):
            expected, after = decide(model[seq], command, now_ms)
            assert outcome is expected, (command, model[seq])
            if outcome in TOOK_EFFECT:
                model.pop(seq)
                if after is not None:
                    model[seq] = after
        assert {one.seq: one for one in await everything(store, now_ms)} == model


def _any_command(draw: random.Random, message: TimedMessage, now_ms: int) -> Command:
    token = message.token - draw.choice([0, 0, 1])
    later = now_ms + draw.randrange(1, 80)
    choices: list[Command] = [
        Complete(message.seq, token),
        Release(message.seq, token, later),
        Extend(message.seq, token, later),
        Cancel(message.id, draw.choice(["", "", "other"])),
        Move(message.id, later, draw.choice(["", "", "other"])),
    ]
    return draw.choice(choices)


@pytest.mark.parametrize("order", list(LeaseOrder))
async def test_a_consumer_gets_due_messages_in_the_order_that_it_asked_for(opening: Opening, order: LeaseOrder) -> None:
    """Two messages had a lease that ended after all others were due: one by its time, one by a release."""
    async with opening() as opened:
        await opened.govern(Create("line"))
        await opened.govern(MakeReady("line"))
        now_ms = time.time_ns() // 1_000_000
        await opened.schedule("line", [new(f"m{at:02}", now_ms - 9_000 + at) for at in range(30)])
        await leased(opened, "m03", now_ms - 5_000, lease_ms=2_000)
        released = await leased(opened, "m01", now_ms - 4_000)
        assert await opened.settle(
            "line", [Release(released.seq, released.token, now_ms - 2_000)], now_ms=now_ms - 3_500
        ) == [CommandOutcome.DONE]
        dispatcher, got, all_there = Dispatcher(opened, Clock(), random.Random(7)), list[str](), asyncio.Event()

        def push(granted: Sequence[Granted]) -> None:
            got.extend(one.message.id for one in granted)
            if len(got) == 30:
                all_there.set()

        await dispatcher.open()
        dispatcher.guard.store_drift(0)  # a store of this suite may have a clock of its own
        dispatcher.guard.check()
        dispatcher.attach("line", ConsumerTerms("w", in_process=True, order=order), push=push, end=lambda _: None)
        await asyncio.wait_for(all_there.wait(), 30)
        await dispatcher.close()
    by_due = [f"m{at:02}" for at in range(30)]
    if order is LeaseOrder.DUE:
        assert got == by_due
    elif order is LeaseOrder.LEASE_END:
        assert got == [*(name for name in by_due if name not in {"m01", "m03"}), "m03", "m01"]
    else:
        assert sorted(got) == by_due
        assert got != by_due
        assert got[-2:] != ["m03", "m01"]
