"""Three brokers with replicated timelines under faults, from a seed: nothing is lost, nothing is done twice.

The journal is in memory and the indexes are real files. A client calls random brokers. Meanwhile leaders change, old
leaders do not notice, answers of the journal are lost (with what was written, or without it), entries are written a
second time, brokers restart with an old index or none, and journals are restated and trimmed. The client knows what was
acknowledged, and the end must agree.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest
from tests.support.replicated_timelines import JournalWorld

from tidemill.model.errors import TidemillError
from tidemill.timelines.core.journal_entries import JournalBatch, JournalPosition
from tidemill.timelines.core.lease import Claim, CommandOutcome, Complete, LeaseGrant, Release
from tidemill.timelines.core.message import EVERYTHING, NewMessage, Selection, TimedMessage
from tidemill.timelines.core.timeline import Create, MakeReady
from tidemill.timelines.replicated import partition, store
from tidemill.timelines.replicated.store import ReplicatedTimelineStore

BROKERS = (1, 2, 3)
PARTITIONS = 2
ROUNDS = 120
LEASE_MS = 400
JOURNAL_BYTES = 6_000
"""So little that journals are restated many times."""


class TimelineClient:
    """Schedules, leases and completes through random brokers, and remembers what was acknowledged."""

    def __init__(self, world: JournalWorld, draw: random.Random) -> None:
        self._world = world
        self._draw = draw
        self.scheduled: set[str] = set()
        self.completed: set[str] = set()
        self.in_doubt: set[str] = set()
        """Completions without an answer."""
        self.leases: dict[str, LeaseGrant] = {}
        self.grants = 0
        self._next = 0

    async def step(self) -> None:
        """Do one thing."""
        act = self._draw.choice([self.schedule, self.lease, self.lease, self.complete, self.release])
        with suppress(TidemillError):
            await act(self._world.stores[self._draw.choice(BROKERS)])

    async def schedule(self, broker: ReplicatedTimelineStore) -> None:
        """Schedule some messages; one that was scheduled before is a duplicate, unless it was completed."""
        now_ms = self._world.now_ms
        names = [f"m{self._next + number}" for number in range(self._draw.randrange(1, 5))]
        self._next += len(names)
        new = [NewMessage(one, now_ms + self._draw.randrange(-50, 300), one.encode() * 20, 7) for one in names]
        kept = await broker.schedule("line", new)
        assert [one.id for one in kept] == names
        self.scheduled.update(names)

    async def lease(self, broker: ReplicatedTimelineStore) -> None:
        """Lease what is due."""
        now_ms = self._world.now_ms
        found = await broker.find("line", Selection(end_ms=now_ms + 1), now_ms=now_ms, limit=5, bodies=True)
        claims = [Claim(one.seq, one.version, "worker", now_ms + LEASE_MS, one.due_ms) for one in found]
        for message, lease in zip(found, await broker.acquire("line", claims, now_ms=now_ms), strict=True):
            if lease is not None:
                self.granted(message, lease, now_ms)

    def granted(self, message: TimedMessage, lease: LeaseGrant, now_ms: int) -> None:
        """A lease was granted: the message was due, is not completed, and has no other live lease."""
        assert message.id not in self.completed, f"{message.id} was delivered after its completion was acknowledged"
        assert message.due_ms <= now_ms, f"{message.id} was early"
        assert message.body == message.id.encode() * 20
        before = self.leases.get(message.id)
        assert before is None or before.until_ms <= now_ms, f"{message.id} has two live leases"
        self.leases[message.id] = lease
        self.grants += 1

    async def complete(self, broker: ReplicatedTimelineStore) -> None:
        """Complete a leased message; a lease that has ended is refused."""
        if not self.leases:
            return
        name = self._draw.choice(sorted(self.leases))
        lease = self.leases.pop(name)
        self.in_doubt.add(name)
        (outcome,) = await broker.settle("line", [Complete(lease.seq, lease.token)], now_ms=self._world.now_ms)
        self.in_doubt.discard(name)
        if outcome is CommandOutcome.DONE:
            assert self._world.now_ms < lease.until_ms
            self.completed.add(name)

    async def release(self, broker: ReplicatedTimelineStore) -> None:
        """Return a leased message."""
        if not self.leases:
            return
        name = self._draw.choice(sorted(self.leases))
        lease = self.leases.pop(name)
        now_ms = self._world.now_ms
        await broker.settle("line", [Release(lease.seq, lease.token, now_ms + 20)], now_ms=now_ms)


class Faults:
    """What goes wrong with the journal and its leaders."""

    def __init__(self, world: JournalWorld, draw: random.Random) -> None:
        self._world = world
        self._draw = draw

    async def step(self) -> None:
        """Let something go wrong, or end it."""
        acts: list[Callable[[], Awaitable[None]]] = [
            self.move,
            self.isolate,
            self.join,
            self.join,
            self.repeat,
            self.restart,
        ]
        await self._draw.choice(acts)()

    async def move(self) -> None:
        """Another broker that is not cut off becomes the leader of a partition."""
        self._draw.choice(self._world.logs).lead(self._draw.choice(sorted(set(BROKERS) - self._world.cut)))

    async def isolate(self) -> None:
        """A leader is cut off and does not notice that another broker leads."""
        if self._world.cut:
            return
        lost = self._draw.choice(BROKERS)
        self._world.cut.add(lost)
        for log in self._world.logs:
            if log.leader == lost:
                log.lead(self._draw.choice([one for one in BROKERS if one != lost]))

    async def join(self) -> None:
        """Brokers that were cut off are back."""
        self._world.cut.clear()

    async def restart(self) -> None:
        """A broker restarts, with its indexes, with those that it had at an earlier restart, or with none."""
        await self._world.restart(self._draw.choice(BROKERS), self._draw.choice(["kept", "earlier", "lost"]))

    async def repeat(self) -> None:
        """The last entries of a partition are in its journal twice."""
        log = self._draw.choice(self._world.logs)
        if log.batches:
            last = log.batches[-1]
            until = JournalPosition(last.until.next_offset + len(last.values), last.until.epoch)
            log.batches.append(JournalBatch(last.values, until))


@pytest.mark.parametrize("seed", range(4))
async def test_brokers_lose_and_repeat_nothing_that_was_acknowledged(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module, name, value in (
        (partition, "POLL_S", 0.002),
        (partition, "RETRY_S", 0.005),
        (partition, "RESTATE_PAUSE_S", 0.0),
        (partition, "RESTATE_MESSAGES", 3),
        (store, "RETRY_S", 0.002),
    ):
        monkeypatch.setattr(module, name, value)
    draw = random.Random(seed)
    world = JournalWorld(tmp_path, PARTITIONS, seed, losses=0.05, journal_bytes=JOURNAL_BYTES)
    world.now_ms = 1_000_000
    for number in BROKERS:
        await world.start(number, wait_s=0.1)
    await create(world)
    client, faults = TimelineClient(world, draw), Faults(world, draw)
    for _ in range(ROUNDS):
        await asyncio.gather(*(client.step() for _ in range(2)))
        if draw.random() < 0.15:
            await faults.step()
        world.now_ms += draw.randrange(30)
    world.cut.clear()
    world.losses = 0.0
    await check_end(world, client)
    assert any(log.start_offset for log in world.logs), "no journal was trimmed"
    assert client.grants > ROUNDS // 4
    for number in list(world.stores):
        await world.stop(number)


async def create(world: JournalWorld) -> None:
    """Create the timeline, in spite of lost answers."""
    for step in (Create("line"), MakeReady("line")):
        for _ in range(20):
            with suppress(TidemillError):
                await world.stores[1].govern(step)
                break


async def check_end(world: JournalWorld, client: TimelineClient) -> None:
    """All brokers, and one that begins with an empty disk, have what was acknowledged."""
    expected: dict[str, TimedMessage] = {}
    for number in (*BROKERS, 4):
        if number not in world.stores:
            await world.start(number, wait_s=0.1)
        for log in world.logs:
            log.lead(number)
        one = world.stores[number]
        one._wait_s = 10.0
        found = {message.id: message for message in await everything(one, world.now_ms)}
        assert not found.keys() & client.completed, "a completed message is back"
        missing = client.scheduled - found.keys() - client.completed - client.in_doubt
        assert not missing, f"messages were lost: {sorted(missing)}"
        assert not expected or found == expected, f"broker {number} has other messages"
        expected = found


async def everything(broker: ReplicatedTimelineStore, now_ms: int) -> list[TimedMessage]:
    return await broker.find("line", EVERYTHING, now_ms=now_ms, limit=5_000, bodies=True)
