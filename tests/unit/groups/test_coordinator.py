"""The coordinator: turns, the journal before the answer, timers, start and end."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from uuid import UUID

import pytest
from tests.support.waiting import eventually_async

from tidemill.coordinator.placement import take_over
from tidemill.coordinator.timers import Timers
from tidemill.groups.coordinator import GroupCoordinator
from tidemill.groups.core.catalog import TopicShape
from tidemill.groups.core.consumer_heartbeat import HeartbeatAnswer, HeartbeatRequest
from tidemill.groups.core.limits import GroupLimits
from tidemill.groups.core.messages import JoinAnswer, JoinRequest, Leaver, SyncRequest
from tidemill.groups.core.offsets import OffsetCommit
from tidemill.groups.core.shard import group_filter
from tidemill.groups.core.subscriptions import read_assignment, write_subscription
from tidemill.model.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    GroupIdNotFound,
    IllegalGeneration,
    InvalidGroupId,
    InvalidRequest,
    InvalidSessionTimeout,
    InvalidTxnState,
    KafkaError,
    KafkaStorageError,
    MemberIdRequired,
    NotCoordinator,
    RebalanceInProgress,
    UnknownMemberId,
)
from tidemill.model.topics import TopicPartition
from tidemill.records.record import Record
from tidemill.testing.clock import VirtualClock

WAIT_S = 30
LIMITS = GroupLimits(initial_rebalance_delay_ms=0)
T0 = TopicPartition("t", 0)
SUBSCRIBES = (("range", write_subscription(["t"])),)


class FakeJournal:
    """A journal in memory; appends wait while `gate` is closed and fail with `failure`."""

    def __init__(self, partitions: int = 2) -> None:
        self.partitions = partitions
        self.batches: list[tuple[int, list[tuple[bytes | None, bytes | None]]]] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.failure: Exception | None = None

    def partition_of(self, key: str) -> int:
        return len(key) % self.partitions

    def leads(self, partition: int, epoch: int) -> bool:
        return True

    async def append(self, partition: int, records: Sequence[tuple[bytes | None, bytes | None]]) -> None:
        await self.gate.wait()
        if self.failure is not None:
            raise self.failure
        self.batches.append((partition, list(records)))

    async def replay(self, partition: int) -> AsyncIterator[Sequence[Record]]:
        for where, records in self.batches:
            if where == partition:
                yield [Record(index, 0, key, value) for index, (key, value) in enumerate(records)]


class Lab:
    """A coordinator on a journal."""

    def __init__(self, journal: FakeJournal, limits: GroupLimits = LIMITS) -> None:
        self.clock = VirtualClock()
        self.set_by_ms = 0
        self.journal = journal
        self.ids = 0
        self.groups = GroupCoordinator(
            journal,
            topics=lambda: [TopicShape("t", UUID(int=1), 2)],
            image_version=lambda: 1,
            make_timers=Timers,
            clock=lambda: self.clock() + self.set_by_ms,
            steady=self.clock,
            new_id=self._new_id,
            limits=limits,
        )

    async def start(self) -> None:
        self.groups.start()
        await take_over(self.groups, dict.fromkeys(range(self.journal.partitions), 0))

    def _new_id(self) -> str:
        self.ids += 1
        return str(self.ids)

    async def join(self, group: str, name: str, member_id: str = "", **changes: object) -> JoinAnswer:
        request = JoinRequest(group, member_id, None, name, "/h", 10_000, 10_000, "consumer", (("range", b""),))
        return await self.groups.join(request._replace(**changes))  # type: ignore[arg-type]  # fields of the request

    async def enter(self, group: str, name: str, **changes: object) -> JoinAnswer:
        first = await self.join(group, name, "", **changes)
        assert isinstance(first.error, MemberIdRequired)
        return await self.join(group, name, first.member_id, **changes)

    async def member(self, group: str, name: str) -> JoinAnswer:
        """The only member of a stable group."""
        joined = await self.enter(group, name)
        await self.groups.sync(
            SyncRequest(group, joined.generation, joined.member_id, assignments={joined.member_id: b"x"})
        )
        return joined

    async def stage(self, group: str, offset: int, check: Callable[[], None] = lambda: None) -> None:
        """What TxnOffsetCommit does, for producer 9."""
        await self.groups.commit_transactional(
            group, producer_id=9, producer_epoch=0, offsets=[OffsetCommit("t", 0, offset)], check=check
        )

    async def end(self, group: str, *, commit: bool, check: Callable[[], None] = lambda: None) -> None:
        """What the end of producer 9's transaction does."""
        await self.groups.end_transaction(
            partition=self.groups.partition_of(group), producer_id=9, commit=commit, check=check
        )

    def committed(self, group: str) -> int:
        return self.groups.fetch(group, [T0])[0].offset


@asynccontextmanager
async def running_lab(journal: FakeJournal | None = None, **options: GroupLimits) -> AsyncIterator[Lab]:
    lab = Lab(journal or FakeJournal(), **options)
    await lab.start()
    try:
        yield lab
    finally:
        lab.journal.gate.set()
        await lab.groups.close()


@pytest.fixture
async def lab() -> AsyncIterator[Lab]:
    async with running_lab() as running:
        yield running


async def test_before_the_start_nothing_is_answered_and_after_the_end_neither() -> None:
    lab = Lab(FakeJournal())
    for ask in (lambda: lab.groups.fetch("g", None), lab.groups.group_ids):
        with pytest.raises(CoordinatorLoadInProgress):
            ask()
    await lab.start()
    lab.groups.fetch("g", None)
    await lab.groups.close()
    with pytest.raises(NotCoordinator):
        lab.groups.fetch("g", None)
    with pytest.raises(NotCoordinator):
        await lab.groups.commit("g", [])


async def test_the_answer_comes_after_the_journal(lab: Lab) -> None:
    joined = await lab.enter("g", "a")
    lab.journal.gate.clear()
    sync = asyncio.ensure_future(lab.groups.sync(SyncRequest("g", joined.generation, joined.member_id)))
    commit = asyncio.ensure_future(lab.groups.commit("other", [OffsetCommit("t", 0, 5)]))
    for _ in range(10):
        await asyncio.sleep(0)
    assert not sync.done()
    assert not commit.done()
    assert lab.committed("other") == -1
    assert lab.groups.describe("g").state == "CompletingRebalance"
    lab.journal.gate.set()
    await sync
    await commit
    assert lab.committed("other") == 5
    assert lab.groups.describe("g").state == "Stable"


async def test_commits_share_a_batch_and_keep_their_order(lab: Lab) -> None:
    lab.journal.gate.clear()
    commits = [
        asyncio.ensure_future(lab.groups.commit("g", [OffsetCommit("t", 0, offset)])) for offset in range(1, 101)
    ]
    await asyncio.sleep(0.01)
    lab.journal.gate.set()
    await asyncio.gather(*commits)
    assert lab.committed("g") == 100
    assert len(lab.journal.batches) <= 3


@pytest.mark.parametrize(
    ("failure", "reported"), [(KafkaStorageError(), NotCoordinator), (OSError("disk"), CoordinatorNotAvailable)]
)
async def test_a_journal_that_fails_changes_nothing(lab: Lab, failure: Exception, reported: type[KafkaError]) -> None:
    joined = await lab.member("g", "a")
    await lab.groups.commit("g", [OffsetCommit("t", 0, 5)], generation=1, member_id=joined.member_id)
    lab.journal.failure = failure
    with pytest.raises(reported):
        await lab.groups.commit("g", [OffsetCommit("t", 0, 6)], generation=1, member_id=joined.member_id)
    with pytest.raises(reported):
        await lab.groups.leave("g", [Leaver(joined.member_id)])
    assert lab.committed("g") == 5
    lab.journal.failure = None
    await lab.groups.commit("h", [OffsetCommit("t", 0, 7)])
    assert lab.committed("h") == 7


async def test_a_commit_that_waits_behind_a_fencing_change_is_fenced(lab: Lab) -> None:
    """What is decided on is never older than what is already on its way to the disk."""
    joined = await lab.member("g", "a")
    lab.journal.gate.clear()
    leave = asyncio.ensure_future(lab.groups.leave("g", [Leaver(joined.member_id)]))
    await asyncio.sleep(0)
    commit = asyncio.ensure_future(
        lab.groups.commit("g", [OffsetCommit("t", 0, 6)], generation=1, member_id=joined.member_id)
    )
    await asyncio.sleep(0.01)
    lab.journal.gate.set()
    await leave
    with pytest.raises(UnknownMemberId):
        await commit
    assert lab.committed("g") == -1


async def test_an_abort_discards_offsets_that_wait_for_the_journal(lab: Lab) -> None:
    await lab.stage("other", 1)
    lab.journal.gate.clear()
    staging = asyncio.ensure_future(lab.stage("tx", 8))
    await asyncio.sleep(0)
    ending = asyncio.ensure_future(lab.end("tx", commit=False))
    await asyncio.sleep(0)
    lab.journal.gate.set()
    await asyncio.gather(staging, ending)
    await lab.end("tx", commit=True)
    assert lab.committed("tx") == -1


async def test_a_deleted_topic_discards_offsets_that_wait_for_the_journal(lab: Lab) -> None:
    await lab.groups.commit("g", [OffsetCommit("t", 1, 4)])
    lab.journal.gate.clear()
    committing = asyncio.ensure_future(lab.groups.commit("g", [OffsetCommit("t", 0, 8)]))
    await asyncio.sleep(0)
    forgetting = asyncio.ensure_future(lab.groups.topic_deleted("t"))
    await asyncio.sleep(0)
    lab.journal.gate.set()
    await asyncio.gather(committing, forgetting)
    assert lab.groups.fetch("g", None) == []


async def test_an_ended_transaction_stages_no_offset(lab: Lab) -> None:
    def ended() -> None:
        raise InvalidTxnState

    with pytest.raises(InvalidTxnState):
        await lab.stage("tx", 8, check=ended)
    await lab.end("tx", commit=True)
    assert lab.committed("tx") == -1


async def test_a_restart_finds_what_was_answered() -> None:
    journal_of: list[FakeJournal] = []

    async with running_lab() as lab:
        journal_of.append(lab.journal)
        joined = await lab.member("g", "a")
        await lab.groups.commit("g", [OffsetCommit("t", 0, 5, 2, "note")], generation=1, member_id=joined.member_id)
        await lab.stage("tx", 8)
        lab.journal.batches.append((lab.journal.partition_of("g"), [(b"\0\2\0\5short", b""), (None, b"x")]))
    journal = FakeJournal()
    journal.batches = journal_of[0].batches
    async with running_lab(journal) as lab:
        assert lab.groups.describe("g").state == "Stable"
        lab.groups.heartbeat("g", 1, "a-1", None)
        assert lab.groups.fetch("g", None)[0][2:5] == (5, 2, "note")
        assert lab.committed("tx") == -1
        for _ in range(2):
            await lab.end("tx", commit=True)
        assert lab.committed("tx") == 8


async def test_a_lost_member_is_noticed_without_anyone_asking(lab: Lab) -> None:
    await lab.member("g", "a")
    lab.clock.advance(20_000)
    await lab.join("h", "b")  # any alarm makes the coordinator look at its clock
    timers = lab.groups._alarms
    assert isinstance(timers, Timers)
    timers._timer_ms = 1 << 62
    timers._start_timer()
    await eventually_async(lambda: lab.groups.describe("g").state == "Empty")


async def test_every_waiting_call_is_answered_at_the_end() -> None:
    lab = Lab(FakeJournal(), GroupLimits(initial_rebalance_delay_ms=60_000))
    await lab.start()
    waiting = asyncio.ensure_future(lab.enter("g", "a"))
    await asyncio.sleep(0.01)
    assert not waiting.done()
    await lab.groups.close()
    with pytest.raises(NotCoordinator):
        await waiting


async def test_requests_that_the_server_refuses(lab: Lab) -> None:
    for group_id in ("", "x" * 5_000):
        with pytest.raises(InvalidGroupId):
            await lab.join(group_id, "a")
        with pytest.raises(InvalidGroupId):
            await lab.groups.delete(group_id)
    for changes in ({"instance_id": "x" * 5_000}, {"protocol_type": "x" * 5_000}):
        with pytest.raises(InvalidRequest):
            await lab.join("g", "a", **changes)
    for session_ms in (5_999, 1_800_001):
        with pytest.raises(InvalidSessionTimeout):
            await lab.join("g", "a", session_timeout_ms=session_ms)
    with pytest.raises(UnknownMemberId):
        await lab.join("g", "a", "stranger")
    with pytest.raises(UnknownMemberId):
        lab.groups.heartbeat("g", 1, "stranger", None)
    with pytest.raises(UnknownMemberId):
        await lab.groups.consumer_heartbeat(HeartbeatRequest("g", "stranger", 5))
    with pytest.raises(IllegalGeneration):
        await lab.groups.commit("g", [], generation=4, member_id="stranger")
    with pytest.raises(GroupIdNotFound):
        lab.groups.describe("g")
    assert lab.groups.group_ids() == []


async def test_both_protocols_in_one_group(lab: Lab) -> None:
    classic = await lab.enter("g", "a", protocols=SUBSCRIBES)
    await lab.groups.sync(SyncRequest("g", 1, classic.member_id))

    async def pulse(epoch: int) -> HeartbeatAnswer:
        joining = HeartbeatRequest("g", "n", epoch, rebalance_timeout_ms=9_000, topic_names=("t",))
        return await lab.groups.consumer_heartbeat(joining._replace(owned=frozenset()))

    assert (await pulse(0)).member_epoch == 2
    with pytest.raises(RebalanceInProgress):
        lab.groups.heartbeat("g", 1, classic.member_id, None)
    joined = await lab.join("g", "a", classic.member_id, protocols=SUBSCRIBES)
    assert (joined.generation, joined.leader, joined.protocol) == (2, "", "range")
    synced = await lab.groups.sync(SyncRequest("g", 2, classic.member_id))
    assert len(read_assignment(synced.assignment)["t"]) == 1
    lab.groups.heartbeat("g", 2, classic.member_id, None)
    assert [member.about.classic is None for member in lab.groups.describe_consumers("g").members] == [False, True]
    assert (await pulse(-1)).member_epoch == -1
    assert lab.groups.describe("g").state == "PreparingRebalance"
    lab.clock.advance(10_000)
    await lab.groups._tick("g")
    assert lab.groups.describe("g").state == "Empty"


async def test_lists_are_filtered(lab: Lab) -> None:
    await lab.member("classic", "a")
    await lab.groups.commit("simple", [OffsetCommit("t", 0, 1)])
    answer = await lab.groups.consumer_heartbeat(
        HeartbeatRequest("new", "", 0, rebalance_timeout_ms=1_000, topic_names=("t",), owned=frozenset())
    )
    assert answer.member_id
    assert len(answer.assigned or ()) == 2

    def names(*filters: list[str]) -> list[str]:
        states, kinds = [*filters, [], []][:2]
        listed = [lab.groups.listed(group_id) for group_id in lab.groups.group_ids()]
        return sorted(group.group_id for group in listed if group and group_filter(states, kinds)(group))

    assert names() == ["classic", "new", "simple"]
    assert names(["stable"]) == ["classic", "new"]
    assert names(["Empty"]) == ["simple"]
    assert names([], ["Consumer"]) == ["new"]
    assert names(["Stable"], ["classic"]) == ["classic"]
    assert lab.groups.describe_consumers("new").state == "Stable"
    with pytest.raises(GroupIdNotFound):
        lab.groups.describe_consumers("classic")
    left = await lab.groups.leave("new", [Leaver(answer.member_id), Leaver("stranger")])
    assert [type(each.error) for each in left] == [type(None), UnknownMemberId]
    await lab.groups.delete("new")
    await lab.groups.topic_deleted("t")
    assert names() == ["classic"]


async def test_old_offsets_go_by_themselves() -> None:
    async with running_lab(limits=GroupLimits(expiry_interval_ms=1)) as lab:
        await lab.groups.commit("g", [OffsetCommit("t", 0, 1)])
        lab.clock.advance(LIMITS.offsets_retention_ms)
        await eventually_async(lambda: lab.groups.group_ids() == [])


@pytest.mark.parametrize("by_ms", [-3_600_000, 3_600_000])
async def test_a_clock_that_is_set_takes_no_session_and_gives_none(lab: Lab, by_ms: int) -> None:
    async def heartbeat(lab: Lab, member_id: str, epoch: int) -> HeartbeatAnswer:
        names = ("t",) if not epoch else None
        return await lab.groups.consumer_heartbeat(
            HeartbeatRequest("new", member_id, epoch, "c", "/h", None, None, 30_000, names, None, None, frozenset())
        )

    joined = await lab.member("g", "a")
    other = await heartbeat(lab, "m", 0)
    await lab.groups.commit("simple", [OffsetCommit("t", 0, 1)])
    lab.set_by_ms = by_ms
    lab.clock.advance(9_999)
    await lab.groups._tick("g")
    lab.groups.heartbeat("g", joined.generation, joined.member_id, None)
    lab.clock.advance(10_000)
    await lab.groups._tick("g")
    assert lab.groups.describe("g").members == ()
    lab.clock.advance(25_000)
    await lab.groups._tick("new")
    other = await heartbeat(lab, "m", other.member_epoch)
    lab.clock.advance(45_000)
    await lab.groups._tick("new")
    with pytest.raises(UnknownMemberId):
        await heartbeat(lab, "m", other.member_epoch)
    lab.clock.advance(LIMITS.offsets_retention_ms - 100_000 - abs(by_ms))
    await lab.groups.expire()
    assert lab.committed("simple") == 1


async def test_offsets_stay_while_the_clock_is_in_doubt(lab: Lab) -> None:
    await lab.groups.commit("simple", [OffsetCommit("t", 0, 1)])
    lab.clock.advance(10 * LIMITS.offsets_retention_ms)
    lab.groups._may_expire = lambda: False
    await lab.groups.expire()
    assert lab.committed("simple") == 1
    lab.groups._may_expire = lambda: True
    await lab.groups.expire()
    assert lab.committed("simple") != 1


async def test_offsets_stay_when_the_clock_jumps_while_a_group_is_busy(lab: Lab) -> None:
    await lab.groups.commit("simple", [OffsetCommit("t", 0, 1)])
    lab.groups._may_expire = lambda: lab.set_by_ms == 0
    async with lab.groups._turn("simple"):
        expiry = asyncio.create_task(lab.groups.expire())
        for _ in range(5):
            await asyncio.sleep(0)
        lab.set_by_ms = 10 * LIMITS.offsets_retention_ms
    await expiry
    assert lab.committed("simple") == 1
