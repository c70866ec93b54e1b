"""The worker that writes groups to tables: twice a second, all heartbeats in one insert."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from tests.support.virtual_loop import VirtualLoop

from tidemill.broker.group_tables import INTERVAL_S, GroupRecorder
from tidemill.groups.core.overview import Overview, SeenMember, SeenOffset
from tidemill.groups.core.table_comparison import OFFSETS_KEPT_MS
from tidemill.model.metrics import CounterReading
from tidemill.sql.table_rows import quoted
from tidemill.streams.clickhouse.errors import EngineRefused, EngineUnreachable
from tidemill.supervision.supervisor import Supervisor

MEMBERS = 40
SECONDS = 60
BEAT_S = 3
ACTIVE_S = 120
JOINED_BEFORE_NS = 77


_ROW = pa.struct(
    {
        "1": pa.int64(),
        "2": pa.int32(),
        "3": pa.binary(),
        "4": pa.bool_(),
        "5": pa.int64(),
    }
)
FOUND = pa.schema({"group_id": pa.binary(), "topic": pa.binary(), "partition": pa.int32(), "high": _ROW, "low": _ROW})


def row(group: str, partition: int, offset: int, commit_ms: int = 1, *, deleted: bool = False) -> dict[str, Any]:
    """The newest row of a partition of `orders` in the table."""
    newest = {"1": offset, "2": -1, "3": b"", "4": deleted, "5": commit_ms}
    return {"group_id": group.encode(), "topic": b"orders", "partition": partition, "high": newest, "low": newest}


class World:
    """Groups whose members send a heartbeat every three seconds, and servers that take what they are given."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self.looks: list[float] = []
        self.inserts: list[tuple[str, pa.RecordBatch, str]] = []
        self.asked: list[str] = []
        self.away = False
        self.rejected = ""
        self.offsets: list[SeenOffset] = []
        self.slow_s = 0.0
        self.tables: dict[int, list[dict[str, Any]]] = {}
        self.commands: list[tuple[int, str]] = []
        self.groups = self.view = self
        self.supervisor = Supervisor()
        self.recorder = GroupRecorder(self, self, "run-")  # type: ignore[arg-type]  # as much of a broker as it needs

    def after(self, sql: str, row: dict[str, Any]) -> bool:
        """Whether the query asks for this row: by its group, or as one after the last page."""
        return "group_id IN" not in sql or quoted(row["group_id"].decode()) in sql

    def clock_ms(self) -> int:
        return int(self._loop.now * 1000)

    def topic_name(self, _topic_id: object) -> None:
        return None

    def carries(self, _group: str) -> bool:
        return True

    def overview(self, _name_of: object) -> Overview:
        self.looks.append(self._loop.now)
        heard_ms = self.clock_ms() // (BEAT_S * 1000) * BEAT_S * 1000
        first = SeenMember("g", "0", 1, "consumer", "range", "me", "here", {}, True, heard_ms, "Stable")
        return Overview([first._replace(member_id=str(number)) for number in range(MEMBERS)], self.offsets)

    def topic(self, _name: str) -> None:
        return None

    def owner_of(self, partition: int, _spread: int) -> int:
        return partition

    async def insert(self, table: str, rows: pa.RecordBatch, *, token: str, server: int = 0) -> None:
        await asyncio.sleep(self.slow_s)
        if self.away and server == 0:
            raise EngineUnreachable("away")
        if self.rejected in rows.column("group_id").to_pylist():
            raise EngineRefused("rejected")
        self.inserts.append((table, rows, token))

    @property
    def servers(self) -> int:
        return 3

    def is_away(self, server: int) -> bool:
        return self.away and server == 0

    async def command(self, sql: str, *, server: int = 0) -> None:
        self.commands.append((server, sql))

    async def query(self, sql: str, *, server: int = 0) -> pa.Table:
        if "FROM consumer_offsets" in sql:
            rows = self.tables.get(server, [])
            return pa.Table.from_pylist([row for row in rows if self.after(sql, row)], schema=FOUND)
        assert server == 0
        if self.away:
            raise EngineUnreachable("away")
        self.asked.append(sql)
        return pa.table({"group_id": [b"g"], "member_id": [b"5"], "joined": [JOINED_BEFORE_NS]})


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> VirtualLoop:
    loop = VirtualLoop()
    monkeypatch.setattr("tidemill.broker.group_tables.time", SimpleNamespace(monotonic=loop.time))
    return loop


def run(loop: VirtualLoop, seconds: float, away_until: float = 0, slow_s: float = 0) -> World:
    world = World(loop)
    world.slow_s = slow_s

    async def live() -> None:
        world.away = away_until > 0
        world.recorder.start()
        await asyncio.sleep(away_until)
        world.away = False
        await asyncio.sleep(seconds - away_until)
        await world.recorder.close()

    try:
        loop.run_until_complete(live())
    finally:
        loop.close()
    return world


def column(rows: pa.RecordBatch, name: str) -> list[Any]:
    found: list[Any] = rows.column(name).cast(pa.int64()).to_pylist()
    return found


def test_heartbeats_of_all_members_are_one_insert_now_and_then(loop: VirtualLoop) -> None:
    world = run(loop, SECONDS)
    assert len(world.looks) == SECONDS / INTERVAL_S + 1, "it looks twice a second"
    beats = MEMBERS * SECONDS // BEAT_S
    assert len(world.inserts) * 100 < beats, "hundreds of heartbeats for each insert"
    assert {rows.num_rows for _, rows, _ in world.inserts} == {MEMBERS}
    assert len({token for _, _, token in world.inserts}) == len(world.inserts)
    heard_s = [min(column(rows, "heartbeat_time")) / 1e9 for _, rows, _ in world.inserts]
    gaps = [after - before for before, after in zip(heard_s, [*heard_s[1:], SECONDS], strict=True)]
    assert max(gaps) < ACTIVE_S / 4, "no member that sends heartbeats comes near to being taken for inactive"


def test_members_keep_the_time_at_which_they_joined_whichever_broker_writes_it(loop: VirtualLoop) -> None:
    world = run(loop, SECONDS)
    assert len(world.asked) == 1, "the table is asked once, for members that are new here"
    times = [column(rows, "join_time") for _, rows, _ in world.inserts]
    assert all(each == times[0] for each in times)
    assert times[0][5] == JOINED_BEFORE_NS
    others = [each for number, each in enumerate(times[0]) if number != 5]
    assert sorted(set(others)) == others, "in the order in which they joined, no two at once"


def test_rows_are_written_when_the_server_is_available_again(loop: VirtualLoop) -> None:
    world = run(loop, 5, away_until=2.2)
    assert [rows.num_rows for _, rows, _ in world.inserts] == [MEMBERS]


def test_a_slow_server_does_not_make_looks_rare(loop: VirtualLoop) -> None:
    world = run(loop, SECONDS, slow_s=4)
    inserts_s = 4 * len(world.inserts)
    assert len(world.looks) > (SECONDS - inserts_s) / INTERVAL_S - len(world.inserts)
    assert len(world.inserts) > 2


def written_offsets(world: World) -> set[tuple[str, int]]:
    tables = [rows for table, rows, _ in world.inserts if table == "consumer_offsets"]
    return {(row["group_id"], row["partition"]) for rows in tables for row in rows.to_pylist()}


def test_the_first_server_away_holds_back_no_offsets_of_another(loop: VirtualLoop) -> None:
    world = World(loop)
    world.offsets = [SeenOffset("g", "orders", partition, 5, -1, "", 1) for partition in range(3)]
    world.away = True
    loop.run_until_complete(world.recorder.record())
    assert written_offsets(world) == {("g", 1), ("g", 2)}
    world.away = False
    loop.run_until_complete(world.recorder.record())
    assert written_offsets(world) == {("g", 0), ("g", 1), ("g", 2)}
    loop.close()


@pytest.mark.parametrize("name", ["g7", "\udc80"], ids=["rejected by the server", "not text"])
def test_a_group_whose_rows_are_rejected_holds_back_no_other(loop: VirtualLoop, name: str) -> None:
    world = World(loop)
    others = [f"g{number}" for number in range(7)]
    world.rejected = "g7"
    world.offsets = [SeenOffset(group, "orders", 1, 5, -1, "", 1) for group in [*others, name]]
    loop.run_until_complete(world.recorder.record())
    assert written_offsets(world) == {(group, 1) for group in others}
    loop.close()


def kinds(world: World) -> dict[str, float]:
    counts = [each for each in world.recorder.readings() if isinstance(each, CounterReading)]
    return {dict(each.labels)["kind"]: each.value for each in counts if each.value}


def test_offsets_that_the_table_has_are_not_written_again_after_a_take_over(loop: VirtualLoop) -> None:
    world = World(loop)
    world.offsets = [SeenOffset("g", "orders", partition, 5, -1, "", 1) for partition in (1, 2)]
    world.tables = {1: [row("g", 1, 5)], 2: [row("g", 2, 5)]}
    loop.run_until_complete(world.recorder.record())
    assert written_offsets(world) == set()
    assert (kinds(world), world.commands) == ({}, [])
    loop.close()


def test_rows_that_differ_from_the_journal_at_a_take_over_are_repaired(loop: VirtualLoop) -> None:
    world = World(loop)
    world.offsets = [SeenOffset(name, "orders", 1, 5, -1, "", 100) for name in ("foreign", "it's", "missing", "stale")]
    world.tables = {
        1: [row("foreign", 1, 9, 200), row("foreign", 2, 9, 7), row("it's", 1, 6, 100), row("stale", 1, 4, 99)]
    }
    loop.run_until_complete(world.recorder.record())
    assert written_offsets(world) == {(name, 1) for name in ("foreign", "it's", "missing", "stale")}
    assert kinds(world) == {"foreign": 2, "extra": 1, "stale": 1}, "a group without a row may be new"
    [(server, deletion)] = world.commands
    assert server == 1
    assert deletion.count("group_id =") == 3, "older rows do not count, and stay"
    assert "group_id = 'it\\'s' AND topic = 'orders' AND partition = 1" in deletion
    assert ">= 100)" in deletion
    assert "partition = 2 AND toUnixTimestamp64Milli(commit_time) >= 0)" in deletion
    loop.close()


def test_rows_that_are_changed_by_hand_are_repaired_within_a_minute(loop: VirtualLoop) -> None:
    world = World(loop)
    world.offsets = [SeenOffset("g", "orders", partition, 5, -1, "", 1) for partition in (1, 2)]

    async def live() -> None:
        world.recorder.start()
        await asyncio.sleep(10)
        world.tables = {1: [row("g", 1, 3, 50), row("unknown", 0, 3, 50)], 2: []}
        await asyncio.sleep(40)
        assert kinds(world) == {}, "nothing is compared yet"
        world.inserts.clear()
        await asyncio.sleep(20)
        assert kinds(world) == {"foreign": 1, "extra": 1, "missing": 1}
        assert written_offsets(world) == {("g", 1), ("g", 2)}
        world.tables = {1: [row("g", 1, 5), row("unknown", 0, 0, 90, deleted=True)], 2: [row("g", 2, 5)]}
        await asyncio.sleep(130)
        assert kinds(world) == {"foreign": 1, "extra": 1, "missing": 1}, "what is right is not reported"
        await world.recorder.close()

    loop.run_until_complete(live())
    loop.close()


def test_a_table_is_compared_page_by_page(loop: VirtualLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemill.broker.group_table_check.PAGE_ROWS", 2)
    world = World(loop)
    world.offsets = [SeenOffset(name, "orders", 1, 5, -1, "", 1) for name in "abcd"]
    asked: list[str] = []

    def after(sql: str, each: dict[str, Any]) -> bool:
        if "group_id IN" in sql:
            return True
        if sql not in asked:
            asked.append(sql)
        last = sql.partition("> ('")[2][:1]
        rows = [found for found in world.tables[1] if found["group_id"].decode() > last]
        return each in rows[:2]

    monkeypatch.setattr(world, "after", after)
    world.tables = {1: [row(name, 1, 5) for name in "abcd"]}

    async def live() -> None:
        await world.recorder.record()
        world.tables = {1: [row(name, 1, 6, 2) for name in "abcd"]}
        for pages, wrong in ((1, 2), (2, 4), (3, 4)):
            await asyncio.sleep(61)
            await world.recorder.record()
            world.tables[1][: pages * 2] = [row(name, 1, 5) for name in "abcd"[: pages * 2]]
            assert kinds(world) == {"foreign": wrong}

    loop.run_until_complete(live())
    assert sum("('b', 'orders', 1)" in sql for sql in asked) == 1
    loop.close()


def test_rows_of_the_same_time_with_other_values_are_found(loop: VirtualLoop) -> None:
    world = World(loop)
    world.offsets = [SeenOffset("g", "orders", 1, 5, -1, "", 1)]
    world.tables = {1: [{**row("g", 1, 5), "low": row("g", 1, 2)["low"]}]}
    loop.run_until_complete(world.recorder.record())
    assert kinds(world) == {"foreign": 1}
    loop.close()


def test_an_expired_row_is_not_missing(loop: VirtualLoop) -> None:
    world = World(loop)
    loop.now = OFFSETS_KEPT_MS / 1000 + 60
    world.offsets = [SeenOffset("g", "orders", 1, 5, -1, "", 1)]

    async def live() -> None:
        world.recorder.start()
        await asyncio.sleep(90)
        await world.recorder.close()

    loop.run_until_complete(live())
    assert kinds(world) == {}
    loop.close()
