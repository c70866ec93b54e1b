"""A local file moves to the cluster: what its messages keep, what is refused, and how the operator resolves that."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from tests.support.replicated_timelines import JournalWorld
from tests.support.waiting import eventually_async

from tidemill.app.engines import open_timelines
from tidemill.model.errors import InvalidConfig
from tidemill.settings import Settings, load
from tidemill.timelines.core.lease import Cancel, Claim, Release
from tidemill.timelines.core.message import EVERYTHING, NewMessage, TimedMessage
from tidemill.timelines.core.recurrence import Recurrence
from tidemill.timelines.core.timeline import Alter, Create, Delete, MakeReady, TimelineSettings
from tidemill.timelines.replicated import moving
from tidemill.timelines.replicated.moving import TimelineMover, TimelineMoveRules
from tidemill.timelines.sqlite import open_store
from tidemill.timelines.sqlite.leaving import LeavingFile

NOW = 1_000_000
PARTITIONS = 3
SHORT = TimelineSettings(lease_ms=5_000, max_attempts=3, dead_letter="timeline:dead")


@pytest.fixture
async def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[JournalWorld]:
    monkeypatch.setattr(moving, "RETRY_S", 0.01)
    world = JournalWorld(tmp_path / "cluster", PARTITIONS)
    world.now_ms = NOW
    for number in (1, 2):
        await world.start(number)
    world.logs[1].lead(2)
    yield world
    for number in list(world.stores):
        await world.stop(number)


async def write_file(
    path: Path, names: Sequence[str], line: str = "line", settings: TimelineSettings | None = None
) -> None:
    local = await open_store(path)
    for step in (Create(line, settings or TimelineSettings()), MakeReady(line)):
        await local.govern(step)
    new = [NewMessage(one, NOW + place, one.encode(), place, b"key", "group") for place, one in enumerate(names)]
    await local.schedule(line, new)
    await local.close()


class Move:
    """A move in the background, and what it reports."""

    def __init__(self, world: JournalWorld, path: Path, number: int = 1, refuse: str = "") -> None:
        self.problems: list[str] = []
        self.mover = TimelineMover(
            lambda: LeavingFile(path),
            world.stores[number],
            TimelineMoveRules(
                lambda name: refuse if name.startswith("__schedule.") else "", lambda _, message: message
            ),
            drawn=f"drawn{path.name}",
            retired_name=lambda: f"{path.name}.moved",
            report=self._report,
        )
        self.task = asyncio.create_task(self.mover.run())

    def _report(self, problems: Sequence[str]) -> None:
        self.problems = list(problems)

    async def has_problem(self, text: str) -> None:
        await eventually_async(lambda: any(text in one for one in self.problems), f"not reported: {text}")

    async def end(self) -> None:
        async with asyncio.timeout(20):
            await self.task


async def all_of(world: JournalWorld, line: str = "line", number: int = 2) -> dict[str, TimedMessage]:
    found = await world.stores[number].find(line, EVERYTHING, now_ms=NOW, limit=1_000, bodies=True)
    return {one.id: one for one in found}


async def test_messages_keep_everything_but_their_numbers_and_holders(world: JournalWorld, tmp_path: Path) -> None:
    path = tmp_path / "timelines.db"
    large = "large" * 30
    names = [*(f"m{number}" for number in range(40)), large]
    await write_file(path, names, settings=SHORT)
    local = await open_store(path)
    found = await local.find("line", EVERYTHING, now_ms=NOW + 4, limit=4)
    claims = [Claim(one.seq, one.version, "worker", NOW + 3_000, one.due_ms) for one in found]
    leases = [one for one in await local.acquire("line", claims, now_ms=NOW + 4) if one is not None]
    every = Recurrence(every_ms=1_000, left=5).to_text()
    await local.schedule("line", [NewMessage("every", NOW, b"", 1, recurrence=every)])
    await local.settle("line", [Release(leases[0].seq, leases[0].token, NOW + 50)], now_ms=NOW + 5)
    before = {one.id: one for one in await local.find("line", EVERYTHING, now_ms=NOW, limit=100, bodies=True)}
    for step in (Create("removed"), MakeReady("removed"), Delete("removed"), Create("half")):
        await local.govern(step)
    await local.close()
    move = Move(world, path)
    await move.end()
    after = await all_of(world)
    numberless = {name: one._replace(seq=0, holder=None) for name, one in before.items()}
    assert {name: one._replace(seq=0) for name, one in after.items()} == numberless
    assert [before[f"m{number}"].attempts for number in range(5)] == [1, 1, 1, 1, 0]
    catalogue = {one.name: one.settings for one in (await world.stores[1].catalogue()).timelines}
    assert catalogue == {"line": SHORT, "half": TimelineSettings()}
    assert (move.problems, move.mover.notes) == ([], [])
    assert not path.exists()
    kept = await open_store(path.with_name("timelines.db.moved"))
    assert len(await kept.find("line", EVERYTHING, now_ms=NOW, limit=100)) == len(before) == len(names) + 1, (
        "the file is a backup"
    )
    await kept.close()


async def test_timelines_of_several_brokers_are_merged(world: JournalWorld, tmp_path: Path) -> None:
    names = {number: [f"b{number}-{place}" for place in range(30)] for number in (1, 2)}
    moves = []
    for number, own in names.items():
        path = tmp_path / f"timelines{number}.db"
        await write_file(path, own)
        moves.append(Move(world, path, number))
    for move in moves:
        await move.end()
    assert set(await all_of(world)) == {*names[1], *names[2]}


async def test_other_settings_are_named_and_the_move_continues_after_a_change(
    world: JournalWorld, tmp_path: Path
) -> None:
    path = tmp_path / "timelines.db"
    await write_file(path, ["one"], settings=TimelineSettings(lease_ms=5_000))
    await write_file(path, ["two"], line="other")
    for step in (Create("line"), MakeReady("line")):
        await world.stores[1].govern(step)
    move = Move(world, path)
    await move.has_problem("timeline 'line' has other settings in the cluster")
    await move.has_problem("lease_ms 30000, not 5000")
    assert set(await all_of(world, "other")) == {"two"}, "the other timeline has moved"
    assert await all_of(world) == {}
    assert move.mover.notes == ["timeline line: 1 messages of this broker's file still move to the cluster"]
    await world.stores[1].govern(Alter("line", TimelineSettings(lease_ms=5_000)))
    await move.end()
    assert set(await all_of(world)) == {"one"}


async def test_ids_in_use_are_named_and_nothing_of_the_timeline_moves_before(
    world: JournalWorld, tmp_path: Path
) -> None:
    path = tmp_path / "timelines.db"
    await write_file(path, [f"m{number}" for number in range(20)])
    for step in (Create("line"), MakeReady("line")):
        await world.stores[1].govern(step)
    await world.stores[1].schedule("line", [NewMessage("m13", NOW, b"other", 7)])
    move = Move(world, path)
    await move.has_problem("other messages with the same ids in the cluster ('m13')")
    assert set(await all_of(world)) == {"m13"}
    await world.stores[2].settle("line", [Cancel("m13")], now_ms=NOW)
    await move.end()
    found = await all_of(world)
    assert set(found) == {f"m{number}" for number in range(20)}
    assert found["m13"].body == b"m13"


async def test_a_move_that_may_not_begin_leaves_the_file_as_it_was(world: JournalWorld, tmp_path: Path) -> None:
    path = tmp_path / "timelines.db"
    await write_file(path, ["later"], line="__schedule.orders")
    move = Move(world, path, refuse="the cluster has no topic orders")
    await move.has_problem("the cluster has no topic orders")
    move.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await move.task
    local = await open_timelines(settings_of(path))
    assert len(await local.find("__schedule.orders", EVERYTHING, now_ms=NOW, limit=5)) == 1
    await local.close()


async def test_a_store_that_does_not_answer_is_reported_and_the_move_continues_later(
    world: JournalWorld, tmp_path: Path
) -> None:
    path = tmp_path / "timelines.db"
    await write_file(path, [f"m{number}" for number in range(20)])
    world.stores[1]._wait_s = 0.05
    world.cut.add(2)
    move = Move(world, path)
    await move.has_problem("wait with their move")
    world.cut.clear()
    await move.end()
    assert move.problems == []
    assert len(await all_of(world)) == 20


async def test_a_file_that_has_begun_to_move_is_not_delivered_from_again(world: JournalWorld, tmp_path: Path) -> None:
    path = tmp_path / "timelines.db"
    await write_file(path, ["one"])
    file = LeavingFile(path)
    await file.open()
    assert await file.begin("first") == await file.begin("second") == "first"
    await file.close()
    with pytest.raises(InvalidConfig, match="start with --timelines replicated: to finish that"):
        await open_timelines(settings_of(path))
    await Move(world, path).end()


def settings_of(path: Path) -> Settings:
    return load({"timelines": f"sqlite:{path}"})
