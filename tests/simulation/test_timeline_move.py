"""Two brokers move files into replicated timelines under faults and kills, while consumers lease and complete.

Brokers, leaders and answers fail as in `test_replicated_timelines.py`. The moves are killed at random points, and begin
again. Every message of the files arrives once, and none returns after its completion was acknowledged.
"""

import asyncio
import random
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from tests.simulation.test_replicated_timelines import BROKERS, PARTITIONS, Faults, TimelineClient, check_end
from tests.support.replicated_timelines import JournalWorld

from tidemill.timelines.core.lease import Claim, Release
from tidemill.timelines.core.message import EVERYTHING, NewMessage
from tidemill.timelines.core.timeline import Create, MakeReady
from tidemill.timelines.replicated import moving, partition, store
from tidemill.timelines.replicated.moving import TimelineMover, TimelineMoveRules
from tidemill.timelines.sqlite import open_store
from tidemill.timelines.sqlite.leaving import LeavingFile

MOVERS = (1, 2)
MESSAGES = 60
ROUNDS_MAX = 2_000
JOURNAL_BYTES = 40_000


def names_of(number: int) -> list[str]:
    return [f"f{number}-{place}" for place in range(MESSAGES)]


async def write_file(path: Path, number: int, now_ms: int) -> None:
    """A file with waiting, leased and released messages."""
    local = await open_store(path)
    for step in (Create("line"), MakeReady("line")):
        await local.govern(step)
    await local.schedule("line", [NewMessage(one, now_ms + 5, one.encode() * 20, 7) for one in names_of(number)])
    found = await local.find("line", EVERYTHING, now_ms=now_ms + 5, limit=20)
    claims = [Claim(one.seq, one.version, "before", now_ms + 200, one.due_ms) for one in found]
    leases = [one for one in await local.acquire("line", claims, now_ms=now_ms + 5) if one is not None]
    await local.settle("line", [Release(one.seq, one.token, now_ms + 9) for one in leases[:10]], now_ms=now_ms + 6)
    await local.close()


def _check(problems: Sequence[str]) -> None:
    """Partitions may be away for a while; nothing else stops a move."""
    assert all("wait with their move" in one for one in problems), problems


def begin(world: JournalWorld, number: int, path: Path, draw: random.Random) -> asyncio.Task[None]:
    mover = TimelineMover(
        lambda: LeavingFile(path),
        world.stores[number],
        TimelineMoveRules(lambda _: "", lambda _, message: message),
        drawn=f"drawn{draw.random()}",
        retired_name=lambda: f"moved{number}.db",
        report=_check,
    )
    return asyncio.create_task(mover.run())


@pytest.mark.parametrize("seed", range(3))
async def test_a_move_that_is_killed_loses_and_repeats_nothing(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module, name, value in (
        (partition, "POLL_S", 0.002),
        (partition, "RETRY_S", 0.005),
        (partition, "RESTATE_PAUSE_S", 0.0),
        (partition, "RESTATE_MESSAGES", 3),
        (store, "RETRY_S", 0.002),
        (moving, "RETRY_S", 0.005),
        (moving, "PAGE_MESSAGES", 4),
    ):
        monkeypatch.setattr(module, name, value)
    draw = random.Random(seed)
    world = JournalWorld(tmp_path, PARTITIONS, seed, losses=0.05, journal_bytes=JOURNAL_BYTES)
    world.now_ms = 1_000_000
    paths = {number: tmp_path / f"local{number}.db" for number in MOVERS}
    for number, path in paths.items():
        await write_file(path, number, world.now_ms)
    for number in BROKERS:
        await world.start(number, wait_s=0.1)
    client, faults = TimelineClient(world, draw), Faults(world, draw)
    moves = {number: begin(world, number, path, draw) for number, path in paths.items()}
    kills = 0
    for _ in range(ROUNDS_MAX):
        await asyncio.gather(*(client.step() for _ in range(2)))
        if draw.random() < 0.1:
            await faults.step()
        for number, task in moves.items():
            if task.done():
                task.result()
            elif draw.random() < 0.1:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
                kills += 1
                moves[number] = begin(world, number, paths[number], draw)
        world.now_ms += draw.randrange(30)
        if all(task.done() for task in moves.values()):
            break
    else:
        pytest.fail("the files did not move")
    for task in moves.values():
        task.result()
    assert kills > 0
    assert not any(path.exists() for path in paths.values())
    world.cut.clear()
    world.losses = 0.0
    client.scheduled.update(*map(names_of, MOVERS))
    await check_end(world, client)
    assert client.grants > 0
    for number in list(world.stores):
        await world.stop(number)
