"""A simulated cluster of three brokers on a virtual clock.

It runs the real cores, partition, fetcher and segment code. The network and the disks are simulated, and a small
coordination keeps sessions and elects by the cluster's own rules.

A nemesis crashes brokers (a power failure loses or tears unsynced blocks; or the process dies), freezes them, cuts
links one way or both, and loses messages. Observers check all the time: one value per offset forever, one leader per
epoch. At the end all faults are repaired. Writes must then succeed, all replicas must be equal, and every acknowledged
record must be there once.

    python -m tests.simulation.replica_world SEEDS [SECONDS] [FIRST_SEED]
"""

import asyncio
import logging
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any

import structlog
from tests.simulation.replica_nodes import COORDINATION, NODES, TOPIC_ID, Coordination, Knobs, Node, values_in
from tests.support.virtual_loop import Network, VirtualLoop

from tidemill.cluster.core.election import elect
from tidemill.cluster.core.image import PartitionInfo, Topic
from tidemill.model.errors import OutOfOrderSequence, TidemillError
from tidemill.model.topic_settings import parse
from tidemill.records.build import NewRecord, build_batch
from tidemill.streams.partition import Partition

HEAL_S = 15.0
QUIET_S = 15.0
PRODUCERS = 3


Elect = Callable[[PartitionInfo, frozenset[int]], PartitionInfo | None]


class World:
    """One simulated history."""

    def __init__(self, seed: int, seconds: float, elect_by: Elect | None = None, *, ambush: bool = False) -> None:
        self.seed = seed
        self._ambush = ambush
        self._ambusher = Random(seed + 1)
        self.seconds = seconds
        self.random = Random(seed)
        self.knobs = Knobs.draw(self.random)
        self.loop = VirtualLoop()
        self.network = Network(self.loop, self.random)
        overrides = {
            "min.insync.replicas": "2",
            "segment.bytes": str(self.knobs.segment_bytes),
            "tidemill.flush": self.knobs.flush,
            "file.delete.delay.ms": "0",
        }
        info = PartitionInfo(0, -1, NODES, NODES, 0)
        self.topic = Topic("t", TOPIC_ID, (info,), overrides, parse(overrides))
        self._elect_by: Elect = elect_by or partial(elect, unclean=False)
        self.coordination = Coordination(self)
        self.nodes = [Node(self, node_id) for node_id in NODES]
        for node in (self.coordination, *self.nodes):
            self.network.join(node)
        self.seen: dict[int, bytes] = {}
        self.acked: dict[bytes, int] = {}
        self.leaders: dict[int, int] = {}
        self.violations: list[str] = []
        self.sometimes: Counter[str] = Counter()
        self.healing = self.healed = False
        self._violated = asyncio.Event()

    def elect(self, info: PartitionInfo, live: frozenset[int]) -> PartitionInfo | None:
        """Elect any eligible replica, because the order of the replicas is only a preference."""
        elected = self._elect_by(replace(info, replicas=tuple(self.random.sample(NODES, len(NODES)))), live)
        return None if elected is None else replace(elected, replicas=info.replicas)

    def aim(self, leader: int) -> None:
        """After a change of the in-sync set: maybe crash its leader, or hide the change from it."""
        if self.healing or self.random.random() >= self.knobs.sniper:
            return
        self.sometimes["sniped"] += 1
        node = self.nodes[leader]
        cut = {(COORDINATION, leader)}
        self.network.cut |= cut
        self.loop.call_later(self.random.uniform(0.2, 3), self.network.cut.difference_update, cut)
        if self.random.random() < 0.7:
            self.loop.call_later(self.random.uniform(0, 0.5), partial(node.crash, power=False))
            self.loop.call_later(self.random.uniform(1, 4), node.boot)

    def lie_in_wait(self, leader: int) -> None:
        """Before a proposal is sent: maybe lose it, and crash its leader soon after."""
        if self.healing or not self._ambush or self._ambusher.random() > 0.5:
            return
        self.sometimes["ambushed"] += 1
        cut = {(leader, COORDINATION)}
        self.network.cut |= cut
        self.loop.call_later(self._ambusher.uniform(0.3, 3), self.network.cut.difference_update, cut)
        node = self.nodes[leader]
        self.loop.call_later(self._ambusher.uniform(0.1, 1.0), partial(node.crash, power=False))
        self.loop.call_later(self._ambusher.uniform(1, 4), node.boot)

    async def ask_coordination(self, node: int, work: Callable[[], Awaitable[Any]], timeout_s: float) -> Any:
        """Call coordination through the simulated network."""
        return await self.network.ask(node, COORDINATION, work, timeout_s)

    def observe(self, offset: int, value: bytes) -> None:
        """A consumer saw a record: its offset must keep this value forever."""
        if self.seen.setdefault(offset, value) != value:
            self.violate(f"offset {offset} was {self.seen[offset]!r:.40} and is {value!r:.40}")

    def observe_role(self, node: int, partition: Partition) -> None:
        """Check that each epoch has one leader."""
        if partition.leads and partition.term is not None:
            epoch = partition.leader_epoch
            if self.leaders.setdefault(epoch, node) != node:
                self.violate(f"epoch {epoch} is led by {self.leaders[epoch]} and {node}")

    def violate(self, text: str) -> None:
        """Record a violation."""
        self._violated.set()
        if len(self.violations) < 20:
            self.violations.append(f"{self.loop.now:.3f}s {text}")

    def run(self) -> "World":
        """Run the whole history."""
        asyncio.set_event_loop(self.loop)
        self.loop.set_exception_handler(self._on_exception)
        try:
            self.loop.run_until_complete(self._main())
        finally:
            for task in asyncio.all_tasks(self.loop):
                task.cancel()
            self.loop.run_until_complete(asyncio.sleep(0))
            asyncio.set_event_loop(None)
            self.loop.close()
        return self

    def _on_exception(self, _loop: object, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if not isinstance(error, TidemillError | OSError | asyncio.CancelledError | TimeoutError | None):
            self.violate(f"a task failed: {error!r}")

    async def _main(self) -> None:
        for node in self.nodes:
            node.boot()
        producers = [self.loop.create_task(self._producer(number)) for number in range(PRODUCERS)]
        nemesis = self.loop.create_task(self._nemesis())
        with suppress(TimeoutError):
            async with asyncio.timeout(self.seconds):
                await self._violated.wait()
        if self.violations:
            return
        nemesis.cancel()
        self._heal()
        await asyncio.sleep(HEAL_S)
        before = len(self.acked)
        await asyncio.sleep(QUIET_S / 3)
        if len(self.acked) == before:
            self.violate("not live after heal")
        self.healed = True
        await asyncio.wait(producers, timeout=QUIET_S)
        await asyncio.sleep(HEAL_S / 5)
        await self._compare()

    def _heal(self) -> None:
        self.healing = True
        self.network.cut.clear()
        self.network.loss = self.network.late = 0.0
        for node in self.nodes:
            node.frozen_until = 0.0
            node.boot()

    async def _producer(self, number: int) -> None:
        """An idempotent producer with one batch in flight. It repeats the sequence until it is acknowledged."""
        random = Random(self.seed * 31 + number)
        guess, sequence = 0, 0
        while not self.healed:
            count = random.randint(1, self.knobs.records_max)
            values = [b"%d-%d-" % (number, sequence + each) + bytes(self.knobs.value_bytes) for each in range(count)]
            while True:
                batch = build_batch(
                    [NewRecord(None, value, (), 1) for value in values],
                    producer_id=number,
                    producer_epoch=0,
                    base_sequence=sequence,
                )
                try:
                    target = self.nodes[guess]
                    offset = await self.network.ask(f"p{number}", guess, partial(target.produce, batch, 1.0), 1.5)
                    break
                except (TidemillError, TimeoutError, OSError) as error:
                    if isinstance(error, OutOfOrderSequence) and self._leads_now(guess):
                        self.violate(f"producer {number}: {error}; something acknowledged is gone")
                        return
                    guess = random.choice(NODES)
                    await asyncio.sleep(0.05)
            for each, value in enumerate(values):
                self.acked[value] = offset + each
                self.observe(offset + each, value)
            sequence += count
            await asyncio.sleep(random.expovariate(10))

    def _leads_now(self, node: int) -> bool:
        """Whether a broker is the leader. One that was frozen may believe so a moment longer."""
        info, partition = self.coordination.info, self.nodes[node].partition
        return info.leader == node and partition is not None and partition.leader_epoch == info.leader_epoch

    async def _nemesis(self) -> None:
        random = self.random
        while True:
            await asyncio.sleep(random.expovariate(self.knobs.faults_per_s))
            node, kind = random.choice(self.nodes), random.random()
            self.sometimes["faults"] += 1
            if kind < 0.3:
                node.crash(power=self.knobs.flush == "fsync" and random.random() < 0.7)
                self.loop.call_later(random.uniform(0.05, 5), node.boot)
            elif kind < 0.42:
                node.frozen_until = self.loop.now + random.uniform(0.2, 4)
                self.sometimes["frozen"] += 1
            elif kind < 0.5:
                self.network.loss = random.choice([0.0, 0.01, 0.2])
            elif kind < 0.56:
                await asyncio.wait([self.loop.create_task(self._delete_records(node))])
            else:
                self._cut(random, node, alone=kind > 0.85)

    async def _delete_records(self, node: Node) -> None:
        try:
            await node.delete_records()
        except (TidemillError, OSError):
            return

    def _cut(self, random: Random, node: Node, *, alone: bool) -> None:
        names = [COORDINATION, *NODES]
        if alone:
            pairs = [(node.name, other) for other in names if other != node.name]
        else:
            one, other = random.sample(names, 2)
            pairs = [(one, other)]
        cut = set(pairs)
        if random.random() < 0.6:
            cut |= {(other, one) for one, other in pairs}
        else:
            self.sometimes["one way"] += 1
        self.network.cut |= cut
        self.loop.call_later(random.uniform(0.2, 5), self.network.cut.difference_update, cut)

    async def _compare(self) -> None:
        """Check that all replicas are equal and have every acknowledged record once."""
        if set(self.coordination.info.isr) != set(NODES):
            self.violate(f"only {self.coordination.info.isr} are in sync after heal")
        logs = []
        for node in self.nodes:
            partition = node.partition
            if partition is None:
                self.violate(f"broker {node.node_id} is not open after heal")
                return
            logs.append(await _whole(partition))
        start = max(log_start for log_start, _ in logs)
        rows = [[row for row in found if row[0] >= start] for _, found in logs]
        if not rows[0] == rows[1] == rows[2]:
            self.violate(f"replicas differ after heal: {[len(each) for each in rows]}")
        found = dict(rows[0])
        lost = [value for value, offset in self.acked.items() if offset >= start and found.get(offset) != value]
        if lost:
            self.violate(f"{len(lost)} of {len(self.acked)} acknowledged records are lost")
        if len(set(found.values())) != len(found):
            self.violate("a record is there twice")


async def _whole(partition: Partition) -> tuple[int, list[tuple[int, bytes]]]:
    """Every record of a replica, committed or not."""
    rows = []
    async for _, batch in partition._log.scan(partition.log_start_offset):
        rows += values_in([batch])
    return partition.log_start_offset, rows


def quiet() -> None:
    """Disable logs, because a campaign has thousands of elections."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))


def main(seeds: int, seconds: float = 100.0, first: int = 0) -> int:
    """Run a campaign and print the results."""
    quiet()
    began = time.perf_counter()
    sometimes: Counter[str] = Counter()
    acked = steps = failed = 0
    for seed in range(first, first + seeds):
        world = World(seed, seconds).run()
        sometimes += world.sometimes
        acked += len(world.acked)
        steps += world.loop.steps
        if world.violations:
            failed += 1
            print(f"seed {seed} {world.knobs}: {world.violations[:3]}")
    took = time.perf_counter() - began
    print(
        f"{seeds} seeds, {seeds * seconds:.0f} simulated s in {took:.1f} s, acknowledged {acked}, "
        f"{steps / took:.0f} steps/s, violated {failed}; {dict(sometimes)}"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    given = dict(enumerate(sys.argv))
    sys.exit(main(int(given.get(1, 20)), float(given.get(2, 100)), int(given.get(3, 0))))
