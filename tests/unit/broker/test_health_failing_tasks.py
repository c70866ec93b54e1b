"""An unexpected error in one of the broker's loops: the loop starts again, and health names it meanwhile."""

import asyncio
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.support.broker_worlds import batch_of, running
from tests.support.shared_store import Node, Store, put_topic
from tests.support.waiting import eventually_async

from tidemill.broker.broker import BrokerNode
from tidemill.broker.deletions import Deletions
from tidemill.broker.health import own_health
from tidemill.client.kafka.replica_fetch import PartGiven, PartWanted
from tidemill.cluster.controller import Controller
from tidemill.cluster.core.registration import DEGRADED
from tidemill.cluster.core.view import View
from tidemill.cluster.membership import Membership
from tidemill.groups.runtime import GroupEngine
from tidemill.model.topic_settings import parse
from tidemill.records.build import NewRecord, build_batch
from tidemill.replication.replica_fetcher import Copy, Fetcher
from tidemill.servers.http.broker_summary import health_of
from tidemill.streams.cleaner import Cleaner
from tidemill.streams.core.insync import Term
from tidemill.streams.memory import MemoryLogStore
from tidemill.streams.opener import opener
from tidemill.streams.partition import Partition
from tidemill.supervision.supervisor import Supervisor
from tidemill.transactions.core.table import TransactionTable

FAST = {
    "tidemill.tend.interval.ms": "10",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "10",
    "offsets.retention.check.interval.ms": "10",
}


def fail_once(monkeypatch: pytest.MonkeyPatch, owner: type, method: str) -> list[int]:
    """Let the first call raise what no loop expects; how often it was called since."""
    original: Callable[..., Any] = getattr(owner, method)
    calls: list[int] = []

    def failing(*arguments: Any, **more: Any) -> Any:
        calls.append(1)
        if len(calls) == 1:
            raise RuntimeError(f"injected into {method}")
        return original(*arguments, **more)

    monkeypatch.setattr(owner, method, failing)
    return calls


@pytest.mark.parametrize(
    ("owner", "method", "task"),
    [
        (BrokerNode, "_publish_health", "maintenance"),
        (TransactionTable, "late", "transactions"),
        (GroupEngine, "expire", "group offsets expiry"),
        (View, "apply", "metadata watch"),
        (Deletions, "look", "maintenance"),
    ],
)
async def test_a_loop_that_fails_starts_again_and_health_says_why(
    owner: type, method: str, task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path, FAST, memory=True) as broker:
        assert health_of(broker)["state"] == "healthy"
        calls = fail_once(monkeypatch, owner, method)
        creating = asyncio.create_task(broker.topics.create("orders"))  # a change for the watch
        await eventually_async(lambda: broker.supervisor.restarts[task] == 1, "it was not restarted")
        await asyncio.wait_for(creating, 30)
        health = health_of(broker)
        assert health["state"] == "degraded"
        [reason] = health["tasks"]["reasons"]
        assert reason == f'task "{task}" failed and is restarted: RuntimeError: injected into {method}'
        assert own_health(broker.partitions, None, broker.supervisor.reasons(), shared=False)[:2] == (
            DEGRADED,
            reason,
        )
        before = len(calls)
        await broker.topics.create("more")
        await eventually_async(lambda: len(calls) > before, "the loop does nothing any more")
        await broker.view.partition("more", 0).leader.append(batch_of(b"x"), acks=-1)


async def test_a_change_that_could_not_be_applied_is_applied_after_the_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path, memory=True) as broker:
        calls = fail_once(monkeypatch, View, "_make_image")
        await broker.topics.create("orders")
        assert "orders" in broker.view.image.by_name
        assert len(calls) > 1


async def test_one_partition_that_fails_does_not_keep_others_from_maintenance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path, memory=True) as broker:
        await broker.topics.create("orders", partitions=3)
        original, tended = Partition.maintain, []

        async def failing(partition: Partition, *arguments: Any) -> None:
            if partition.index == 0:
                raise RuntimeError("injected into tend")
            tended.append(partition.index)
            await original(partition, *arguments)

        monkeypatch.setattr(Partition, "maintain", failing)
        await broker.maintain()
        assert tended == [1, 2]
        assert broker.supervisor.reasons() == [
            'job "partition maintenance" (orders-0) failed: RuntimeError: injected into tend'
        ]


async def test_a_compaction_that_fails_is_reported_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    overrides = {"cleanup.policy": "compact", "segment.bytes": "100", "min.cleanable.dirty.ratio": "0"}
    async with running(tmp_path, FAST) as broker:
        await broker.topics.create("orders", overrides=overrides)
        calls = fail_once(monkeypatch, Cleaner, "run")
        for _ in range(4):
            batch = build_batch([NewRecord(b"key", b"x", timestamp=broker.clock_ms())])
            await broker.view.partition("orders", 0).leader.append(batch, acks=-1)
        await eventually_async(lambda: len(calls) >= 1, "nothing was compacted")
        await eventually_async(lambda: broker.supervisor.failures["partition maintenance"] == 1, "not reported")


async def test_a_deadline_of_a_group_is_kept_after_an_unexpected_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidemill.groups.runtime.RETRY_MS", 10)
    async with running(tmp_path, memory=True) as broker:
        engine: Any = broker.groups

        async def failing(*_: Any) -> None:
            raise RuntimeError("injected into the deadline")

        monkeypatch.setattr(engine, "_perform", failing)
        partition = engine.partition_of("g")
        engine._shards[partition] = _ShardWithOneGroup()
        engine._on_deadline("g")
        await eventually_async(lambda: broker.supervisor.failures["group deadline"] == 1, "not reported")
        assert "g" in engine._alarms._asked, "it is looked at again"
        del engine._shards[partition]


class _ShardWithOneGroup:
    """As much of a shard as a deadline looks at."""

    class _Group:
        def tick(self, now_ms: int) -> None:
            """Never called: performing it fails before."""

    def __init__(self) -> None:
        self.groups = {"g": self._Group()}


class _Answers:
    """A leader that has nothing new."""

    def __init__(self) -> None:
        self.asked = 0
        self.closed = 0

    async def fetch(self, wanted: Sequence[PartWanted]) -> Sequence[PartGiven]:
        self.asked += 1
        if self.asked == 1:
            raise RuntimeError("injected into fetch")
        await asyncio.sleep(0.01)
        return []

    def close(self) -> None:
        self.closed += 1


async def test_a_replica_fetcher_asks_again_on_a_new_connection() -> None:
    supervisor, link = Supervisor(), _Answers()

    async def connect(_: int) -> _Answers:
        return link

    fetcher = Fetcher(0, connect, 1024, supervisor)
    follower = await opener(MemoryLogStore(), lambda: 1)("t", 0, parse({}), 0)
    await follower.follower.follow(Term(leader=0, epoch=3, version=0, replicas=(0, 1), isr=(0, 1)))
    fetcher.add(Copy(uuid.uuid4(), follower))
    await eventually_async(lambda: link.asked > 2, "it asks no more")
    assert link.closed == 1
    assert supervisor.restarts["replica fetcher"] == 1
    assert supervisor.reasons() == [
        'task "replica fetcher" (leader 0) failed and is restarted: RuntimeError: injected into fetch'
    ]
    await fetcher.close()
    await follower.close()


@pytest.mark.event_loop("virtual")
async def test_a_membership_that_failed_while_it_rejoined_joins_again(monkeypatch: pytest.MonkeyPatch) -> None:

    store = Store()
    one = Node(store, 1)
    supervisor = Supervisor()
    await one.metadata.load()
    following = asyncio.create_task(one.metadata.follow(one._changed))
    await one.membership.join()
    staying = supervisor.keep("membership", one.membership.stay)
    calls = fail_once(monkeypatch, Membership, "_join_again")
    one.line.cut = True
    await eventually_async(lambda: not one.membership.alive, "its session does not end")
    one.line.cut = False
    await eventually_async(lambda: one.membership.alive, "it does not come back")
    assert len(calls) == 2
    assert supervisor.restarts["membership"] == 1
    for task in (staying, following):
        task.cancel()
    await asyncio.gather(staying, following, return_exceptions=True)


@pytest.mark.event_loop("virtual")
async def test_a_controller_that_failed_decides_again(monkeypatch: pytest.MonkeyPatch) -> None:

    store = Store()
    one, other, supervisor = Node(store, 1), Node(store, 2), Supervisor()
    await one.start()
    await other.start()
    calls = fail_once(monkeypatch, Controller, "_work")
    controlling = supervisor.keep("controller", one.controller.run)
    put_topic(store, 2, 1)
    await eventually_async(lambda: "orders" in one.metadata.image.by_name, "the topic is not seen")
    other.line.cut = True
    await eventually_async(lambda: one.state().leader == 1, "the controller decides nothing any more")
    assert len(calls) > 1
    assert supervisor.restarts["controller"] == 1
    controlling.cancel()
    await asyncio.gather(controlling, return_exceptions=True)
