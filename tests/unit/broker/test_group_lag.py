"""The lag of groups on /metrics: exact at the end of the log, bounded in work."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.support.broker_worlds import batch_of, running

from tidemill.broker import group_lag, partition_metrics
from tidemill.broker.broker import BrokerNode
from tidemill.broker.group_lag import GroupLags, Place
from tidemill.broker.loop_turns import LoopTurns
from tidemill.broker.prometheus import exposition
from tidemill.groups.core.offsets import OffsetCommit
from tidemill.model.metrics import Gauge
from tidemill.model.topics import GROUP_OFFSETS
from tidemill.records.build import NewRecord, build_batch
from tidemill.records.unread import UnreadPosition
from tidemill.streams.partition import Partition
from tidemill.testing.clock import VirtualClock


async def scraped(broker: BrokerNode, *, by_partition: bool = False) -> dict[tuple[str, ...], float]:
    text = await exposition(broker.metrics, by_partition=by_partition)
    return {
        (
            sample.name.removeprefix("tidemill_"),
            *(value for name, value in sorted(sample.labels.items()) if name != "cluster"),
        ): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
        if "group" in sample.name or "partition_" in sample.name
    }


async def commit(broker: BrokerNode, group: str, topic: str, offset: int, partition: int = 0) -> None:
    await broker.internal.ensure(GROUP_OFFSETS)
    await broker.groups.commit(group, [OffsetCommit(topic, partition, offset)])


async def transaction(partition: Partition, producer: int, *, is_committed: bool) -> None:
    records = [NewRecord(None, b"v", timestamp=1_700_000_000_000)]
    batch = build_batch(records, producer_id=producer, producer_epoch=0, base_sequence=0, transactional=True)
    await partition.leader.append(batch, acks=1)
    await partition.leader.append_marker(producer, 0, commit=is_committed)


def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_lag, "FRESH_S", 0.0)


async def test_lag_by_group_topic_and_partition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fresh(monkeypatch)
    clock = VirtualClock()
    async with running(tmp_path, memory=True, clock=clock) as broker:
        await broker.topics.create("orders", partitions=2)
        for index, count in ((0, 5), (1, 3)):
            await broker.view.partition("orders", index).leader.append(batch_of(*[b"v"] * count), acks=1)
        await commit(broker, "mailer", "orders", 1)
        await commit(broker, "mailer", "orders", 3, partition=1)
        await commit(broker, "mailer", "gone", 7)
        found = await scraped(broker, by_partition=True)
        assert found["group_lag_records", "mailer", "orders"] == 4
        assert found["group_lag_records_max", "mailer", "orders"] == 4
        assert found["group_lag_seconds", "mailer", "orders"] == max(0, broker.clock_ms() - 1_700_000_000_000) / 1_000
        assert found["group_members", "mailer"] == 0
        assert found["group_state", "mailer", "Empty"] == 1
        assert found["group_partition_lag_records", "mailer", "0", "orders"] == 4
        assert found["group_partition_lag_records", "mailer", "1", "orders"] == 0
        assert found["group_partition_committed_offset", "mailer", "1", "orders"] == 3
        assert found["partition_log_end_offset", "0", "orders"] == 5
        assert found["group_lag_unknown_partitions",] == 0
        assert not any("gone" in key for key in found)
        assert not any("partition_" in key[0] for key in await scraped(broker))
        await commit(broker, "mailer", "orders", 5)
        found = await scraped(broker)
        assert found["group_lag_records", "mailer", "orders"] == 0
        assert found["group_lag_seconds", "mailer", "orders"] == 0


async def test_a_group_that_has_read_everything_has_no_lag(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fresh(monkeypatch)
    async with running(tmp_path, memory=True) as broker:
        await broker.topics.create("paid")
        partition = broker.view.partition("paid", 0)
        await transaction(partition, 7, is_committed=True)
        await commit(broker, "reader", "paid", 1)
        assert partition.high_watermark == 2
        assert (await scraped(broker))["group_lag_records", "reader", "paid"] == 0
        await transaction(partition, 8, is_committed=False)
        assert partition.high_watermark == 4
        assert (await scraped(broker))["group_lag_records", "reader", "paid"] == 0
        await partition.leader.append(batch_of(b"new"), acks=1)
        found = await scraped(broker)
        assert found["group_lag_records", "reader", "paid"] == 1
        assert found["group_lag_seconds", "reader", "paid"] >= 0


async def test_work_is_bounded_and_every_group_gets_its_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fresh(monkeypatch)
    monkeypatch.setattr(group_lag, "LOOKS_MAX", 10)
    looks: list[int] = []

    class CountingLags(GroupLags):
        async def _look_here(self, wanted: list[Place], turns: LoopTurns) -> None:
            looks.append(len(wanted))
            await super()._look_here(wanted, turns)

    async with running(tmp_path, memory=True) as broker:
        await broker.topics.create("busy")
        await broker.view.partition("busy", 0).leader.append(batch_of(*[b"v"] * 40), acks=1)
        for number in range(35):
            await commit(broker, f"g{number}", "busy", number)
        # Not the object of the broker, which also looks for the history of the lag.
        lags = CountingLags(
            broker.view, broker.partitions, broker.groups, Unreachable(), node_id=0, clock_ms=broker.clock_ms
        )
        for _ in range(5):
            readings = list(await lags.snapshot(False))
        assert looks == [10, 10, 10, 5, 0]
        found = {(each.name, *each.labels): each.value for each in readings if isinstance(each, Gauge)}
        names = [(("group", f"g{number}"), ("topic", "busy")) for number in range(35)]
        assert [found["tidemill_group_lag_records", *name] for name in names] == list(range(40, 5, -1))
        assert len([key for key in found if key[0] == "tidemill_group_lag_seconds"]) == 35


class Unreachable:
    async def next_unread(
        self, node_id: int, wanted: Sequence[Place]
    ) -> AsyncIterator[tuple[Place, tuple[UnreadPosition, int]]]:
        assert node_id < 0, "no other broker leads a partition"
        for each in wanted:
            yield each, (UnreadPosition(0), 0)


async def test_frequent_scrapes_use_the_same_result(tmp_path: Path) -> None:
    async with running(tmp_path, memory=True) as broker:
        await broker.topics.create("orders")
        await broker.view.partition("orders", 0).leader.append(batch_of(b"v"), acks=1)
        await commit(broker, "mailer", "orders", 0)
        assert (await scraped(broker))["group_lag_records", "mailer", "orders"] == 1
        await commit(broker, "mailer", "orders", 1)
        assert (await scraped(broker))["group_lag_records", "mailer", "orders"] == 1


async def test_the_rows_of_groups_and_partitions_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_lag, "GROUPS_MAX", 3)
    monkeypatch.setattr(group_lag, "DETAIL_ROWS_MAX", 2)
    monkeypatch.setattr(partition_metrics, "PARTITIONS_MAX", 3)
    async with running(tmp_path, memory=True) as broker:
        await broker.topics.create("orders")
        for number in range(5):
            await commit(broker, f"g{number}", "orders", 0)
        found = await scraped(broker, by_partition=True)
        assert len([key for key in found if key[0] == "group_members"]) == 3
        assert found["groups", "Empty"] == 5
        assert len([key for key in found if key[0] == "group_partition_lag_records"]) == 2
        assert len([key for key in found if key[0] == "partition_high_watermark"]) == 3
        assert len([key for key in found if key[0] == "group_lag_records"]) == 5


async def test_a_slow_leader_is_not_waited_for_and_what_it_has_answered_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_lag, "LEADER_S", 0.05)
    asked: list[list[Place]] = []

    class SlowLeader:
        async def next_unread(
            self, node_id: int, wanted: Sequence[Place]
        ) -> AsyncIterator[tuple[Place, tuple[UnreadPosition, int]]]:
            asked.append(list(wanted))
            yield wanted[0], (UnreadPosition(wanted[0][1]), 10)
            await asyncio.Event().wait()

    async with running(tmp_path, memory=True) as broker:
        await broker.topics.create("far", partitions=2)
        for group in ("a", "b"):
            await commit(broker, group, "far", 4)
        await commit(broker, "a", "far", 7, partition=1)
        for index in range(2):
            monkeypatch.setattr(broker.view.partition("far", index)._replica.leader, "leads", False)
        monkeypatch.setattr(type(broker.view), "leader_of", lambda *_: 2)
        lag = group_lag.GroupLags(
            broker.view, broker.partitions, broker.groups, SlowLeader(), node_id=0, clock_ms=broker.clock_ms
        )
        fresh(monkeypatch)
        for _ in range(2):
            found = {
                (each.name, each.labels[:1]): each.value
                for each in await lag.snapshot(False)
                if isinstance(each, Gauge)
            }
        assert [len(each) for each in asked] == [2, 2]  # two groups at one offset are one question
        assert asked[0][0] != asked[1][0]
        assert found["tidemill_group_lag_unknown_partitions", ()] == 0
        assert found["tidemill_group_lag_records", (("group", "a"),)] == 6 + 3
        assert found["tidemill_group_lag_records", (("group", "b"),)] == 6


async def test_offsets_that_are_notes_of_pipelines_have_no_lag(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fresh(monkeypatch)
    async with running(tmp_path, memory=True) as broker:
        await broker.topics.create("orders")
        await broker.view.partition("orders", 0).leader.append(batch_of(*[b"v"] * 5), acks=1)
        await commit(broker, "mailer", "orders", 2)
        ledger = OffsetCommit("orders", 0, 1, metadata="0/1 done query=q1 batch=3 tasks=1 kept= branches=")
        await broker.groups.commit("tidemill-q1", [ledger])
        await broker.groups.commit("mailer-2", [ledger])
        found = await scraped(broker)
        assert found["group_lag_records", "mailer", "orders"] == 3
        assert found["group_lag_records", "mailer-2", "orders"] == 4, "only groups of pipelines have notes"
        assert ("group_lag_records", "tidemill-q1", "orders") not in found
        assert found["group_lag_unknown_partitions",] == 0
        state = await broker.group_lag.of_group("tidemill-q1")
        assert list(state.lags()) == []
