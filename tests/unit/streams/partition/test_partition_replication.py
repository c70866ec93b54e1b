"""Leader and followers of one partition, without a network: what is copied, when it is committed, what is truncated."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tidemill.model.errors import (
    CorruptMessage,
    FencedLeaderEpoch,
    InvalidUpdateVersion,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    NotLeaderOrFollower,
    OffsetNotAvailable,
    OutOfOrderSequence,
    RequestTimedOut,
    UnknownLeaderEpoch,
)
from tidemill.model.topic_settings import parse
from tidemill.records.build import NewRecord, build_batch
from tidemill.records.header import iter_headers
from tidemill.records.read import read_records
from tidemill.streams.core.follower import Diverged, OutOfRange, Question
from tidemill.streams.core.insync import Term
from tidemill.streams.follower_log import Copied
from tidemill.streams.leader_replication import Agreement
from tidemill.streams.memory import MemoryLogStore
from tidemill.streams.opener import opener
from tidemill.streams.partition import Partition, ReadResult

MAX_BYTES = 1 << 20


class Cluster:
    """Three replicas of one partition, and the agreement about them."""

    def __init__(self, **overrides: str) -> None:
        self.settings = parse({name.replace("_", "."): value for name, value in overrides.items()})
        self.term = Term(leader=0, epoch=1, version=0, replicas=(0, 1, 2), isr=(0, 1, 2))
        self.nodes: list[Partition] = []
        self.refuse: Exception | None = None
        self.proposals = 0

    async def start(self) -> None:
        for _ in range(3):
            self.nodes.append(await opener(MemoryLogStore(), lambda: 1)("t", 0, self.settings, 0))
        await self.elect(0)

    async def elect(self, leader: int, isr: tuple[int, ...] | None = None) -> Partition:
        isr = self.term.isr if isr is None else isr
        self.term = Term(leader, self.term.epoch + 1, self.term.version + 1, (0, 1, 2), isr)
        await self.spread()
        return self.nodes[leader]

    async def spread(self) -> None:
        for node, partition in enumerate(self.nodes):
            if node == self.term.leader:
                await partition.leader.lead(self.term, Agreement(self.propose, lag_max_ms=50.0))
            else:
                await partition.follower.follow(self.term)

    async def propose(self, term: Term, isr: tuple[int, ...]) -> Term:
        self.proposals += 1
        if self.refuse is not None:
            raise self.refuse
        if term.version != self.term.version:
            raise InvalidUpdateVersion
        self.term = term._replace(version=term.version + 1, isr=isr)
        return self.term

    async def copy(self, *followers: int, rounds: int = 2) -> None:
        for _ in range(rounds):
            for node in followers:
                await self.copy_once(node)

    async def copy_once(self, node: int) -> ReadResult | Diverged | OutOfRange:
        for _ in range(5):
            await asyncio.sleep(0)  # what was begun gets as far as it can
        follower, leader = self.nodes[node], self.nodes[self.term.leader]
        asked = await follower.follower.ask()
        assert asked is not None
        answer = await leader.leader.read_as_replica(node, asked, MAX_BYTES)
        await follower.follower.take(asked, copied(answer), leader.log_start_offset)
        return answer


def copied(answer: ReadResult | Diverged | OutOfRange) -> Copied | Diverged | OutOfRange:
    return Copied(b"".join(answer.records), answer.high_watermark) if isinstance(answer, ReadResult) else answer


def batch(value: bytes, sequence: int = -1, count: int = 1) -> bytearray:
    records = [NewRecord(b"k", value, (), 1)] * count
    if sequence < 0:
        return build_batch(records)
    return build_batch(records, producer_id=7, producer_epoch=0, base_sequence=sequence)


async def values(partition: Partition) -> list[bytes | None]:
    found = await partition.reader.read(partition.log_start_offset, MAX_BYTES)
    return [record.value for piece in found.records for record in _records(piece)]


def _records(piece: bytes | bytearray | memoryview) -> list[NewRecord]:
    view = memoryview(piece)
    return [
        NewRecord(record.key, record.value)
        for position, header in iter_headers(view)
        for record in read_records(view[position : position + header.size])
    ]


@asynccontextmanager
async def running_cluster(**overrides: str) -> AsyncIterator[Cluster]:
    cluster = Cluster(**overrides)
    await cluster.start()
    yield cluster
    for node in cluster.nodes:
        await node.close()


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with running_cluster() as running:
        yield running


async def test_acks_all_waits_for_every_replica_in_sync_and_acks_1_does_not(cluster: Cluster) -> None:
    leader = cluster.nodes[0]
    assert (await leader.leader.append(batch(b"one"), acks=1)).base_offset == 0
    waiting = asyncio.create_task(leader.leader.append(batch(b"all"), acks=-1))
    await cluster.copy(1)
    assert not waiting.done()
    assert await values(leader) == [], "readers see what is committed only"
    await cluster.copy(2)
    assert (await waiting).base_offset == 1
    assert await values(leader) == [b"one", b"all"]


async def test_followers_have_the_same_bytes_and_producers(cluster: Cluster) -> None:
    leader = cluster.nodes[0]
    for number in range(3):
        await leader.leader.append(batch(b"v%d" % number, number), acks=1)
    marker = asyncio.create_task(leader.leader.append_marker(7, 0, commit=False))
    await cluster.copy(1, 2, rounds=3)
    await marker
    first = await leader.leader.read_as_replica(1, Question(0, leader.leader_epoch, 0, -1), MAX_BYTES)
    assert isinstance(first, ReadResult)
    new = await cluster.elect(1)
    await cluster.copy(0, 2)
    second = await new.leader.read_as_replica(2, Question(1, new.leader_epoch, 0, -1), MAX_BYTES)
    assert isinstance(second, ReadResult)
    assert b"".join(first.records) == b"".join(second.records)
    assert new.producers() == leader.producers()


async def test_b15_a_retry_after_a_change_of_leaders_is_a_duplicate_and_waits_until_it_is_committed(
    cluster: Cluster,
) -> None:
    leader = cluster.nodes[0]
    lost = asyncio.create_task(leader.leader.append(batch(b"v", 0), acks=-1))
    await cluster.copy_once(1)
    await cluster.copy_once(2)
    new = await cluster.elect(1)
    with pytest.raises(NotLeaderOrFollower):
        await lost
    retry = asyncio.create_task(new.leader.append(batch(b"v", 0), acks=-1))
    await asyncio.sleep(0)
    assert not retry.done()
    await cluster.copy(0, 2)
    assert (await retry).base_offset == 0
    assert await values(new) == [b"v"]
    with pytest.raises(OutOfOrderSequence):
        await new.leader.append(batch(b"later", 5), acks=1)


async def test_b3_a_leader_that_returns_drops_what_no_other_replica_has(cluster: Cluster) -> None:
    leader = cluster.nodes[0]
    await leader.leader.append(batch(b"both", 0), acks=1)
    await cluster.copy(1, 2)
    await leader.leader.append(batch(b"mine", 1, count=3), acks=1)
    new = await cluster.elect(1)
    waiting = asyncio.create_task(new.leader.append(batch(b"theirs", 1), acks=-1))
    await cluster.copy(2)
    assert await cluster.copy_once(0) == Diverged(2, 1)
    assert cluster.nodes[0].log_end_offset == 1
    await cluster.copy(0)
    await waiting
    assert await values(new) == [b"both", b"theirs"]
    assert (await cluster.elect(0)).producers()[0].last_sequence == 1, "its producers are as its log says"


async def test_b4_questions_and_answers_of_other_epochs_are_refused_and_dropped(cluster: Cluster) -> None:
    leader, follower = cluster.nodes[0], cluster.nodes[1]
    await leader.leader.append(batch(b"v"), acks=1)
    asked = await follower.follower.ask()
    assert asked is not None
    with pytest.raises(FencedLeaderEpoch):
        await leader.leader.read_as_replica(1, asked._replace(epoch=1), MAX_BYTES)
    with pytest.raises(UnknownLeaderEpoch):
        await leader.leader.read_as_replica(1, asked._replace(epoch=9), MAX_BYTES)
    with pytest.raises(NotLeaderOrFollower):
        await leader.leader.read_as_replica(8, asked, MAX_BYTES)
    answer = await leader.leader.read_as_replica(1, asked, MAX_BYTES)
    await cluster.elect(2)
    await follower.follower.take(asked, copied(answer), 0)
    assert follower.log_end_offset == 0


async def test_min_insync_is_asked_before_and_after_the_write() -> None:
    async with running_cluster(min_insync_replicas="2") as cluster:
        leader = cluster.nodes[0]
        waiting = asyncio.create_task(leader.leader.append(batch(b"v"), acks=-1))
        await asyncio.sleep(0.08)
        leader.leader.tick()  # no follower asked for longer than the lag
        with pytest.raises(NotEnoughReplicasAfterAppend):
            await waiting
        with pytest.raises(NotEnoughReplicas):
            await leader.leader.append(batch(b"v"), acks=-1)
        assert (await leader.leader.append(batch(b"one"), acks=1)).base_offset == 1
        await cluster.copy(1, 2, rounds=3)
        await asyncio.sleep(0)
        assert set(cluster.term.isr) == {0, 1, 2}
        again = asyncio.create_task(leader.leader.append(batch(b"w"), acks=-1))
        await cluster.copy(1, 2, rounds=3)
        assert (await again).base_offset == 2


async def test_acks_all_that_takes_too_long_is_a_time_out_and_the_records_stay(cluster: Cluster) -> None:
    leader = cluster.nodes[0]
    with pytest.raises(RequestTimedOut):
        await leader.leader.append(batch(b"slow"), acks=-1, timeout_s=0.01)
    await cluster.copy(1, 2)
    assert await values(leader) == [b"slow"]


async def test_b7_a_proposal_with_an_unknown_outcome_is_repeated(cluster: Cluster) -> None:
    leader = cluster.nodes[0]
    cluster.refuse = RequestTimedOut("unknown")
    await leader.leader.append(batch(b"v"), acks=1)
    await asyncio.sleep(0.08)
    await cluster.copy(1)
    leader.leader.tick()
    await asyncio.sleep(0)
    assert (cluster.proposals, leader.high_watermark) == (1, 0)
    cluster.refuse = None
    await asyncio.sleep(0.21)
    await cluster.copy(1)
    leader.leader.tick()
    await asyncio.sleep(0)
    assert (cluster.term.isr, leader.high_watermark) == ((0, 1), 1)


async def test_b18_a_leader_that_stepped_down_serves_no_client_until_a_later_epoch(cluster: Cluster) -> None:
    leader = cluster.nodes[0]
    waiting = asyncio.create_task(leader.leader.append(batch(b"v"), acks=-1))
    await asyncio.sleep(0)
    leader.leader.step_down()
    with pytest.raises(NotLeaderOrFollower):
        await waiting
    for refused in (
        leader.leader.append(batch(b"v"), acks=1),
        leader.reader.read(0, 10),
        leader.leader.append_own(batch(b"v")),
    ):
        with pytest.raises(NotLeaderOrFollower):
            await refused
    cluster.term = cluster.term._replace(version=cluster.term.version + 1)
    await cluster.spread()
    assert not leader.leads
    await cluster.elect(0)
    assert (await leader.leader.append(batch(b"w"), acks=1)).base_offset == 1


async def test_b20_a_new_leader_does_not_invent_an_end(cluster: Cluster) -> None:
    await cluster.nodes[0].leader.append(batch(b"v"), acks=1)
    await cluster.copy_once(1)
    await cluster.copy_once(2)
    new = await cluster.elect(1)
    assert new.high_watermark == 0
    with pytest.raises(OffsetNotAvailable):
        new.leader.check_end_known()
    settling = asyncio.create_task(new.leader.end_settled())
    await cluster.copy(0, 2)
    new.leader.check_end_known()
    assert await settling == 1


async def test_a_follower_that_was_away_begins_where_its_leader_does_also_within_a_batch(cluster: Cluster) -> None:
    leader = cluster.nodes[0]
    await leader.leader.append(batch(b"old", count=4), acks=1)
    await leader.leader.append(batch(b"cut", count=4), acks=1)
    await cluster.copy(1, 2)
    await leader.leader.append(batch(b"new"), acks=1)
    await cluster.copy(1, 2)
    assert await leader.leader.delete_records(6) == 6
    await cluster.copy(1)
    assert cluster.nodes[1].log_start_offset == 6
    cluster.nodes[2] = await opener(MemoryLogStore(), lambda: 1)("t", 0, cluster.settings, 0)
    await cluster.nodes[2].follower.follow(cluster.term)
    assert await cluster.copy_once(2) == OutOfRange(6)
    await cluster.copy(2)
    fresh = cluster.nodes[2]
    assert (fresh.log_start_offset, fresh.log_end_offset, fresh.high_watermark) == (6, 9, 9)
    assert len(await values(await cluster.elect(2))) >= 3


async def test_b14_a_damaged_batch_is_not_copied(cluster: Cluster) -> None:
    leader, follower = cluster.nodes[0], cluster.nodes[1]
    await leader.leader.append(batch(b"value" * 10), acks=1)
    asked = await follower.follower.ask()
    assert asked is not None
    answer = await leader.leader.read_as_replica(1, asked, MAX_BYTES)
    assert isinstance(answer, ReadResult)
    damaged = bytearray(b"".join(answer.records))
    damaged[70] ^= 1
    with pytest.raises(CorruptMessage):
        await follower.follower.take(asked, Copied(damaged, 1), 0)
    assert follower.log_end_offset == 0
    await cluster.copy(1)
    assert follower.log_end_offset == 1


async def test_a_transaction_whose_marker_is_not_committed_is_not_shown(cluster: Cluster) -> None:
    leader = cluster.nodes[0]
    records = [NewRecord(b"k", b"t", (), 1)]
    opened = build_batch(records, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    await leader.leader.append(opened, acks=1)
    await cluster.copy(1, 2)
    marker = asyncio.create_task(leader.leader.append_marker(7, 0, commit=True))
    await asyncio.sleep(0)
    assert (leader.high_watermark, leader.last_stable_offset) == (1, 0)
    await cluster.copy(1, 2)
    await marker
    assert (leader.high_watermark, leader.last_stable_offset) == (2, 2)


async def test_an_only_replica_leads_at_once_and_followers_may_come_later(cluster: Cluster) -> None:
    alone = await opener(MemoryLogStore(), lambda: 1)("t", 0, cluster.settings, 0)
    await alone.leader.append(batch(b"v"), acks=-1)
    agreement = Agreement(cluster.propose)
    await alone.leader.lead(Term(0, 1, 0, (0,), (0,)), agreement)
    await alone.leader.append(batch(b"w"), acks=-1)
    assert alone.high_watermark == 2
    cluster.term = Term(0, 1, 1, (0, 1), (0,))
    await alone.leader.lead(cluster.term, agreement)
    await alone.leader.append(batch(b"x"), acks=-1)
    await cluster.nodes[1].follower.follow(cluster.term._replace(epoch=9))
    asked = Question(0, 1, 0, -1)
    assert isinstance(await alone.leader.read_as_replica(1, asked, MAX_BYTES), ReadResult)
    await alone.leader.read_as_replica(1, asked._replace(offset=3, last_epoch=1), MAX_BYTES)
    await asyncio.sleep(0)
    assert cluster.term.isr == (0, 1)
    await alone.close()


@pytest.mark.parametrize("min_insync", ["1", "2"])
async def test_b18_a_leader_that_is_cut_off_acknowledges_nothing_though_it_still_leads(min_insync: str) -> None:
    """It is alone and does not know it: no follower copies, and the others stay in sync."""
    async with running_cluster(min_insync_replicas=min_insync) as cluster:
        leader = cluster.nodes[0]
        kept = asyncio.create_task(leader.leader.append(batch(b"kept"), acks=-1))
        await cluster.copy(1, 2)
        await kept
        cluster.refuse = NotLeaderOrFollower("etcd was not reached")
        await asyncio.sleep(0.06)  # longer than a follower may lag
        leader.leader.tick()
        with pytest.raises(RequestTimedOut):
            await leader.leader.append(batch(b"in doubt"), acks=-1, timeout_s=0.02)
        assert cluster.proposals > 0
        assert leader.high_watermark == 1
        assert await values(leader) == [b"kept"], "no client reads it either"
        cluster.refuse = None
        await cluster.elect(1, (1, 2))
        await cluster.copy(0, 2, rounds=3)
        assert cluster.nodes[0].log_end_offset == 1, "what was in doubt is dropped by the next leader's log"


async def test_compaction_does_not_hide_the_start_of_an_epoch() -> None:
    async with running_cluster(
        cleanup_policy="compact", segment_bytes="80", min_cleanable_dirty_ratio="0.01"
    ) as cluster:
        first, second, third = cluster.nodes
        await first.leader.append(build_batch([NewRecord(b"another", b"a", (), 1)]), acks=1)
        await cluster.copy(1, 2)
        for _ in range(3):
            await first.leader.append(batch(b"lost"), acks=1)
        await cluster.copy(2)
        await cluster.elect(1, isr=(0, 1))  # the third is away, with what was never committed
        for value in (b"b", b"c", b"d", b"e"):
            await second.leader.append(batch(value), acks=1)
        await cluster.copy(0, rounds=3)
        await second.maintain(1)
        await second.cleaned()
        assert await values(second) == [b"a", b"d", b"e"], "the beginning of the epoch is left out"
        await second.leader.append(batch(b"cut"), acks=1)
        await second.maintain(1)
        await second.cleaned()
        await cluster.elect(0, isr=(0, 1))
        await first.leader.append(batch(b"f"), acks=1)
        await cluster.copy(1, rounds=4)
        await cluster.elect(1, isr=(0, 1))
        await cluster.copy(0, 2, rounds=4)
        await cluster.elect(2, isr=(0, 1, 2))
        await cluster.copy(0, 1, rounds=3)
        found = await values(third)
        assert b"lost" not in found
        assert (found[0], found[-2:]) == (b"a", [b"e", b"f"])
