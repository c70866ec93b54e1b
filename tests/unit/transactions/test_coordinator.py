"""The coordinator's shell: order of journal, markers and answers; crashes; concurrent callers."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from tests.unit.transactions.world import World, lead_all, partitions

from tidemill.model.errors import (
    ConcurrentTransactions,
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    InvalidTransactionTimeout,
    InvalidTxnState,
    KafkaStorageError,
    NotCoordinator,
    ProducerFenced,
    TidemillError,
    TransactionalIdNotFound,
    UnknownTopicOrPartition,
)
from tidemill.model.topics import TopicPartition
from tidemill.transactions import coordinator as shell
from tidemill.transactions.coordinator import TransactionCoordinator
from tidemill.transactions.core.rules import InitProducer
from tidemill.transactions.core.state import ProducerIdAndEpoch, TransactionStatus
from tidemill.transactions.interface import TransactionLimits

INIT = InitProducer("a", 60_000)
T0 = TopicPartition("t", 0)


@pytest.fixture
def world() -> World:
    return World()


async def settle(coordinator: TransactionCoordinator, transactional_id: str, state: TransactionStatus) -> None:
    for _ in range(1000):
        if coordinator.describe(transactional_id).state is state:
            return
        await asyncio.sleep(0)
    raise AssertionError(coordinator.describe(transactional_id))


async def opened(world: World, *names: str) -> tuple[TransactionCoordinator, ProducerIdAndEpoch]:
    coordinator = world.coordinator()
    await lead_all(coordinator)
    identity = await coordinator.init_producer(INIT)
    await coordinator.add_partitions("a", identity, partitions(*names))
    return coordinator, identity


async def test_a_commit_has_written_its_markers_when_it_returns(world: World) -> None:
    coordinator, identity = await opened(world, "t-0", "u-3")
    assert await coordinator.end_transaction("a", identity, commit=True, bump=False) == identity
    assert world.marked() == [("t-0", 0, 0, "commit"), ("u-3", 0, 0, "commit")]
    assert coordinator.describe("a").state is TransactionStatus.COMPLETE_COMMIT


async def test_a_producer_without_a_transactional_id_just_gets_a_number(world: World) -> None:
    coordinator = world.coordinator()
    await lead_all(coordinator)
    assert await coordinator.init_producer(None) == ProducerIdAndEpoch(0, 0)
    assert await coordinator.init_producer(None) == ProducerIdAndEpoch(1, 0)
    assert world.journal.records == [[], []]


async def test_a_timeout_beyond_the_limit_is_refused(world: World) -> None:
    coordinator = world.coordinator(TransactionLimits(timeout_ms_max=1000))
    await lead_all(coordinator)
    with pytest.raises(InvalidTransactionTimeout):
        await coordinator.init_producer(InitProducer("a", 1001))


async def test_producer_ids_are_never_given_twice(world: World) -> None:
    coordinator = world.coordinator()
    await lead_all(coordinator)
    wanted = [coordinator.init_producer(InitProducer(f"id-{index}", 1000)) for index in range(50)]
    identities = await asyncio.gather(*wanted)
    assert len({identity.producer_id for identity in identities}) == 50


async def test_racing_instances_get_different_epochs(world: World) -> None:
    coordinator = world.coordinator()
    await lead_all(coordinator)
    identities = await asyncio.gather(*(coordinator.init_producer(INIT) for _ in range(20)))
    assert sorted(identity.epoch for identity in identities) == list(range(20))
    assert len({identity.producer_id for identity in identities}) == 1


async def test_an_open_transaction_is_aborted_before_its_id_changes_hands(world: World) -> None:
    coordinator, old = await opened(world, "t-0")
    with pytest.raises(ConcurrentTransactions):
        await coordinator.init_producer(INIT)
    await settle(coordinator, "a", TransactionStatus.COMPLETE_ABORT)
    assert world.marked() == [("t-0", 0, 1, "abort")]
    assert await coordinator.init_producer(INIT) == ProducerIdAndEpoch(0, 2)
    with pytest.raises(ProducerFenced):
        await coordinator.end_transaction("a", old, commit=True, bump=False)


async def test_no_marker_is_written_when_the_outcome_cannot_be_journaled(world: World) -> None:
    coordinator, identity = await opened(world, "t-0")
    world.journal.fail_next = True
    with pytest.raises(NotCoordinator):
        await coordinator.end_transaction("a", identity, commit=True, bump=False)
    assert coordinator.describe("a").state is TransactionStatus.ONGOING
    assert world.markers == []
    await coordinator.end_transaction("a", identity, commit=False, bump=False)
    assert world.marked() == [("t-0", 0, 0, "abort")]


async def test_a_caller_that_goes_away_does_not_tear_memory_from_journal(world: World) -> None:
    coordinator, identity = await opened(world, "t-0")
    caller = asyncio.create_task(coordinator.end_transaction("a", identity, commit=True, bump=False))
    for _ in range(2):
        await asyncio.sleep(0)
    caller.cancel()
    await settle(coordinator, "a", TransactionStatus.COMPLETE_COMMIT)
    again = world.coordinator()
    await lead_all(again)
    assert again.describe("a") == coordinator.describe("a")


async def test_half_written_markers_are_finished_after_a_crash(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shell, "MARKERS_WAIT_S", 0)

    coordinator, identity = await opened(world, "t-0", "t-1", "t-2")
    world.refuse = lambda marker: KafkaStorageError() if marker.partition.partition else None
    await coordinator.end_transaction("a", identity, commit=True, bump=False)
    await coordinator.close()
    assert {where for where, *_ in world.marked()} <= {"t-0"}
    world.refuse = lambda _: None
    again = world.coordinator()
    await lead_all(again)
    with pytest.raises(ConcurrentTransactions):
        await again.add_partitions("a", identity, {T0})
    await settle(again, "a", TransactionStatus.COMPLETE_COMMIT)
    assert {(where, wish) for where, _, _, wish in world.marked()} == {
        ("t-0", "commit"),
        ("t-1", "commit"),
        ("t-2", "commit"),
    }


async def test_a_marker_that_failed_is_tried_again_by_the_tick(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shell, "MARKERS_WAIT_S", 0)

    coordinator, identity = await opened(world, "t-0")
    world.refuse = lambda _: KafkaStorageError()
    await coordinator.end_transaction("a", identity, commit=True, bump=False)
    for _ in range(20):
        await asyncio.sleep(0)
    assert coordinator.describe("a").state is TransactionStatus.PREPARE_COMMIT
    world.refuse = lambda _: None
    await coordinator.tick()
    await settle(coordinator, "a", TransactionStatus.COMPLETE_COMMIT)


@pytest.mark.parametrize("error", [UnknownTopicOrPartition(), InvalidProducerEpoch()])
async def test_a_partition_with_nothing_to_end_delays_no_other(world: World, error: TidemillError) -> None:
    coordinator, identity = await opened(world, "gone-0", "t-0")
    world.refuse = lambda marker: error if marker.partition.topic == "gone" else None
    await coordinator.end_transaction("a", identity, commit=True, bump=False)
    assert coordinator.describe("a").state is TransactionStatus.COMPLETE_COMMIT
    assert world.marked() == [("t-0", 0, 0, "commit")]


@pytest.mark.parametrize(("bump", "version"), [(True, 2), (False, 0)])
async def test_the_journal_says_which_version_of_transactions_the_client_has(
    world: World, bump: bool, version: int
) -> None:
    """Kafka's ClientTransactionVersion: 2 is KIP-890, with a new epoch for each transaction."""
    coordinator, identity = await opened(world, "t-0")
    await coordinator.end_transaction("a", identity, commit=True, bump=bump)
    await settle(coordinator, "a", TransactionStatus.COMPLETE_COMMIT)
    known = coordinator.describe("a")
    assert (known.client_version, known.started_ms, known.partitions) == (version, -1, frozenset())


async def test_an_open_transaction_times_out(world: World) -> None:
    coordinator, identity = await opened(world, "t-0")
    world.now_ms += 60_000
    await coordinator.tick()
    assert coordinator.describe("a").state is TransactionStatus.ONGOING
    world.now_ms += 1
    await coordinator.tick()
    await settle(coordinator, "a", TransactionStatus.COMPLETE_ABORT)
    assert world.marked() == [("t-0", 0, 1, "abort")]
    with pytest.raises(ProducerFenced):
        await coordinator.end_transaction("a", identity, commit=True, bump=True)


async def test_a_coordinator_that_still_reads_ends_nothing(world: World) -> None:
    """What it has read so far may be long over: a marker of that transaction would end the one that is open now."""
    coordinator, identity = await opened(world, "t-0")
    await coordinator.end_transaction("a", identity, commit=True, bump=False)
    await coordinator.add_partitions("a", identity, {T0})
    before = world.marked()
    heir = world.coordinator()

    async def tick() -> None:
        await heir.tick()
        for _ in range(5):
            await asyncio.sleep(0)

    world.journal.between = tick
    await lead_all(heir)
    assert heir.describe("a").state is TransactionStatus.ONGOING
    assert world.marked() == before


@pytest.mark.parametrize("set_by_ms", [86_400_000, -86_400_000], ids=["ahead", "back"])
async def test_a_clock_that_is_set_neither_ends_a_transaction_nor_keeps_it(world: World, set_by_ms: int) -> None:
    coordinator, identity = await opened(world, "t-0")
    world.set_by_ms = set_by_ms
    await coordinator.add_partitions("a", identity, {TopicPartition("t", 1)})
    world.now_ms += 60_000
    await coordinator.tick()
    assert coordinator.describe("a").state is TransactionStatus.ONGOING
    world.now_ms += 1
    await coordinator.tick()
    await settle(coordinator, "a", TransactionStatus.COMPLETE_ABORT)


@pytest.mark.parametrize(("passed_ms", "set_by_ms", "left_ms"), [(40_000, 0, 20_000), (40_000, -86_400_000, 60_000)])
async def test_the_next_coordinator_knows_the_age_by_the_time_of_the_day(
    world: World, passed_ms: int, set_by_ms: int, left_ms: int
) -> None:
    """Never more than the producer asked for: a clock that was set back must not keep readers waiting for a day."""
    await opened(world, "t-0")
    world.now_ms += passed_ms
    world.set_by_ms = set_by_ms
    heir = world.coordinator()
    await lead_all(heir)
    world.now_ms += left_ms
    await heir.tick()
    assert heir.describe("a").state is TransactionStatus.ONGOING
    world.now_ms += 1
    await heir.tick()
    await settle(heir, "a", TransactionStatus.COMPLETE_ABORT)


async def test_one_id_that_cannot_be_timed_out_does_not_hold_up_others(world: World) -> None:
    coordinator, _ = await opened(world, "t-0")
    other = await coordinator.init_producer(InitProducer("b", 60_000))
    await coordinator.add_partitions("b", other, {T0})
    world.now_ms += 60_001
    world.journal.fail_next = True
    await coordinator.tick()
    await settle(coordinator, "b", TransactionStatus.COMPLETE_ABORT)
    assert coordinator.describe("a").state is TransactionStatus.ONGOING
    await coordinator.tick()
    await settle(coordinator, "a", TransactionStatus.COMPLETE_ABORT)


async def test_an_id_that_rests_is_forgotten_also_by_the_journal(world: World) -> None:
    coordinator, identity = await opened(world, "t-0")
    await coordinator.end_transaction("a", identity, commit=True, bump=False)
    await coordinator.init_producer(InitProducer("b", 60_000))
    world.now_ms += TransactionLimits().id_expiry_ms - 1
    await coordinator.tick()
    assert len(coordinator.select()) == 2
    await coordinator.init_producer(InitProducer("b", 60_000))
    world.now_ms += shell.SWEEP_INTERVAL_MS
    await coordinator.tick()
    again = world.coordinator()
    await lead_all(again)
    for each in (coordinator, again):
        assert [known.transactional_id for known in each.select()] == ["b"]
        with pytest.raises(TransactionalIdNotFound):
            each.describe("a")
    with pytest.raises(InvalidProducerIdMapping):
        await coordinator.add_partitions("a", identity, {T0})


async def test_no_transaction_expires_while_the_clock_is_in_doubt(world: World) -> None:
    _, identity = await opened(world, "t-0")
    world.is_clock_trusted = False
    world.set_by_ms = 10 * TransactionLimits().id_expiry_ms
    again = world.coordinator()
    await lead_all(again)
    await again.tick()
    assert again.describe("a").state is TransactionStatus.ONGOING, "an open transaction is not aborted by a wrong clock"
    await again.end_transaction("a", identity, commit=True, bump=False)
    world.now_ms += shell.SWEEP_INTERVAL_MS
    world.set_by_ms *= 2
    await again.tick()
    assert [known.transactional_id for known in again.select()] == ["a"]
    world.is_clock_trusted = True
    await again.tick()
    assert again.select() == []


async def test_ids_stay_when_the_clock_is_corrected_during_a_tick(world: World) -> None:
    """The wrong time was read while the clock was in doubt; afterwards the gate is open, but not for that time."""
    coordinator, identity = await opened(world, "t-0")
    await coordinator.end_transaction("a", identity, commit=True, bump=False)
    late = await coordinator.init_producer(InitProducer("b", 60_000))
    await coordinator.add_partitions("b", late, {T0})
    world.now_ms += max(shell.SWEEP_INTERVAL_MS, 60_001)
    world.set_by_ms, world.is_clock_trusted = 2 * TransactionLimits().id_expiry_ms, False
    append = world.journal.append

    async def correct(partition: int, records: Sequence[tuple[bytes | None, bytes | None]]) -> None:
        world.set_by_ms, world.is_clock_trusted = 0, True
        await append(partition, records)

    world.journal.append = correct  # type: ignore[method-assign]  # the clock is set while `b` is aborted
    await coordinator.tick()
    assert world.is_clock_trusted
    assert {known.transactional_id for known in coordinator.select()} == {"a", "b"}


async def test_ids_stay_when_the_clock_jumps_while_they_are_busy(world: World) -> None:
    coordinator, identity = await opened(world, "t-0")
    await coordinator.end_transaction("a", identity, commit=True, bump=False)
    world.now_ms += TransactionLimits().id_expiry_ms
    async with coordinator._turn("a"):
        tick = asyncio.create_task(coordinator.tick())
        for _ in range(5):
            await asyncio.sleep(0)
        world.is_clock_trusted = False
    await tick
    assert [known.transactional_id for known in coordinator.select()] == ["a"]


async def test_only_partitions_of_the_open_transaction_may_be_written(world: World) -> None:
    coordinator, identity = await opened(world, "t-0")
    await coordinator.verify("a", *identity, T0)
    with pytest.raises(InvalidTxnState):
        await coordinator.verify("a", *identity, TopicPartition("t", 1))
    with pytest.raises(InvalidProducerEpoch):
        await coordinator.verify("a", identity.producer_id, 9, T0)
    with pytest.raises(InvalidProducerIdMapping):
        await coordinator.verify("a", 77, 0, T0)
    with pytest.raises(InvalidTxnState):
        await coordinator.verify(None, *identity, T0)
    await coordinator.end_transaction("a", identity, commit=True, bump=False)
    with pytest.raises(InvalidTxnState):
        await coordinator.verify("a", *identity, T0)


async def test_a_write_may_join_the_transaction_by_itself(world: World) -> None:
    coordinator = world.coordinator()
    await lead_all(coordinator)
    identity = await coordinator.init_producer(INIT)
    await coordinator.verify("a", *identity, T0, implicit=True)
    assert coordinator.describe("a").partitions == {T0}
    journaled = sum(map(len, world.journal.records))
    await coordinator.verify("a", *identity, T0, implicit=True)
    assert sum(map(len, world.journal.records)) == journaled
    following = await coordinator.end_transaction("a", identity, commit=True, bump=True)
    assert following == ProducerIdAndEpoch(0, 1)
    assert world.marked() == [("t-0", 0, 1, "commit")]
    with pytest.raises(InvalidProducerEpoch):
        await coordinator.verify("a", *identity, T0, implicit=True)
    await coordinator.verify("a", *following, T0, implicit=True)


@pytest.mark.parametrize("commit", [True, False])
async def test_b16_a_late_batch_of_an_old_transaction_does_not_join_the_next(world: World, commit: bool) -> None:
    """Each transaction has an epoch of its own: what comes late is known by it, at the coordinator and in the log."""
    coordinator, first = await opened(world, "t-0")
    second = await coordinator.end_transaction("a", first, commit=commit, bump=True)
    await coordinator.verify("a", *second, T0, implicit=True)
    with pytest.raises(InvalidProducerEpoch):
        await coordinator.verify("a", *first, T0)
    with pytest.raises(InvalidProducerEpoch):
        await coordinator.verify("a", *first, T0, implicit=True)
    with pytest.raises((InvalidProducerEpoch, ProducerFenced)):
        await coordinator.add_partitions("a", first, {T0})
    assert coordinator.describe("a").partitions == {T0}
    [(_, producer_id, epoch, _)] = world.marked()
    assert (producer_id, epoch) == second, "the marker carries the next epoch: the log knows what is late"


async def test_writes_that_join_by_themselves_keep_their_order(world: World) -> None:
    coordinator = world.coordinator()
    await lead_all(coordinator)
    identity = await coordinator.init_producer(INIT)
    written: list[int] = []

    async def write(number: int) -> None:
        await coordinator.verify("a", *identity, T0, implicit=True)
        written.append(number)

    tasks = []
    for number in range(40):  # a new write at each turn of the loop: some come just when the partition has joined
        tasks.append(asyncio.create_task(write(number)))
        await asyncio.sleep(0)
    await asyncio.gather(*tasks)
    assert written == list(range(40))


async def test_select_filters(world: World) -> None:
    coordinator, identity = await opened(world, "t-0")
    other = await coordinator.init_producer(InitProducer("b", 60_000))
    world.now_ms += 500

    def names(**filters: Any) -> list[str]:
        return sorted(known.transactional_id for known in coordinator.select(**filters))

    assert names() == ["a", "b"]
    assert names(states={"Ongoing"}) == ["a"]
    assert names(producer_ids={other.producer_id}) == ["b"]
    assert names(states={"Ongoing"}, producer_ids={other.producer_id}) == []
    assert names(older_ms=499) == ["a"]
    assert names(older_ms=500) == []
    assert identity != other
