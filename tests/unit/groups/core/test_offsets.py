"""Offsets: commit, stage, end, expire; and what belongs to whole groups."""

import pytest
from tests.support.group_stage import Stage

from tidemill.groups.core.classic_group import ClassicState
from tidemill.groups.core.entries import OffsetKey, OffsetValue, StagedKey
from tidemill.groups.core.limits import DAY_MS, GroupLimits
from tidemill.groups.core.messages import GroupStep
from tidemill.groups.core.offsets import OffsetCommit
from tidemill.model.errors import (
    GroupIdNotFound,
    GroupSubscribedToTopic,
    NonEmptyGroup,
    StaleMemberEpoch,
    UnknownMemberId,
    UnstableOffsetCommit,
)
from tidemill.model.topics import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def stage_offsets(stage: Stage, producer_id: int, offset: int) -> None:
    commits = [OffsetCommit("t", 0, offset)]
    stage.perform("g", lambda now: GroupStep(stage.shard.offsets.stage("g", producer_id, commits, now)))


def end(stage: Stage, producer_id: int, *, commit: bool) -> None:
    stage.perform("g", lambda _now: GroupStep(stage.shard.offsets.end_transaction(producer_id, commit=commit)))


def test_a_partition_without_a_commit_has_no_offset() -> None:
    stage = Stage()
    (found,) = stage.shard.fetch("unknown", [T0], stable=True)
    assert (found.offset, found.leader_epoch, found.metadata, found.error) == (-1, -1, "", None)
    assert stage.shard.fetch("unknown", None, stable=False) == []


def test_all_offsets_of_a_group_or_none_of_no_partitions() -> None:
    stage = Stage()
    stage.commit("g", None, 5)
    stage.commit("g", None, 6, partition=1)
    assert [(each.partition, each.offset) for each in stage.shard.fetch("g", None, stable=False)] == [(0, 5), (1, 6)]
    assert stage.shard.fetch("g", [], stable=False) == []


@pytest.mark.parametrize("crash", [False, True])
@pytest.mark.parametrize("commit", [False, True])
def test_staged_offsets_count_when_the_transaction_commits(commit: bool, crash: bool) -> None:
    stage = Stage()
    stage.commit("g", None, 5)
    stage_offsets(stage, 7, 10)
    if crash:
        stage.crash()
    assert stage.committed("g") == 5
    (found,) = stage.shard.fetch("g", [T0], stable=True)
    assert isinstance(found.error, UnstableOffsetCommit)
    assert found.offset == -1
    with pytest.raises(NonEmptyGroup):
        stage.shard.delete("g")
    end(stage, 8, commit=True)
    assert stage.committed("g") == 5
    end(stage, 7, commit=commit)
    if crash:
        stage.crash()
    assert stage.committed("g") == (10 if commit else 5)
    assert stage.shard.fetch("g", [T0], stable=True)[0].error is None
    size = len(stage.journal)
    end(stage, 7, commit=commit)
    assert len(stage.journal) == size, "a repeated end finds nothing to do"


@pytest.mark.parametrize("crash", [False, True])
def test_the_end_of_a_transaction_does_not_bring_back_an_older_offset(crash: bool) -> None:
    stage = Stage()
    stage_offsets(stage, 7, 10)
    stage.commit("g", None, 30)
    if crash:
        stage.crash()
    end(stage, 7, commit=True)
    assert stage.committed("g") == 30
    assert stage.shard.fetch("g", [T0], stable=True)[0].error is None
    stage_offsets(stage, 7, 20)
    end(stage, 7, commit=True)
    assert stage.committed("g") == 20, "it was staged later"


@pytest.mark.parametrize("crash", [False, True])
@pytest.mark.parametrize("order", [(1, 2), (2, 1)])
def test_of_two_transactions_the_offset_that_was_staged_later_stays(order: tuple[int, int], crash: bool) -> None:
    stage = Stage()
    stage_offsets(stage, 1, 10)
    stage_offsets(stage, 2, 20)
    for producer_id in order:
        end(stage, producer_id, commit=True)
        if crash:
            stage.crash()
    assert stage.committed("g") == 20


def test_a_forgotten_group_leaves_the_offsets_of_others() -> None:
    offsets = Stage().shard.offsets
    for group in ("g", "h"):
        for entry in offsets.commit(group, [OffsetCommit("t", 0, 5)], 1):
            offsets.replay(entry.key, entry.value)  # type: ignore[arg-type]  # a key and value of an offset
        for entry in offsets.stage(group, 7, [OffsetCommit("t", 1, 6)], 1):
            offsets.replay(entry.key, entry.value)  # type: ignore[arg-type]  # a key and value of an offset
    assert [entry.key for entry in offsets.forget_group("g")] == [OffsetKey("g", "t", 0), StagedKey(7, "g", "t", 1)]


def test_the_limits_are_kafkas_defaults() -> None:
    limits = GroupLimits()
    assert limits.offsets_retention_ms == 604_800_000
    assert (limits.session_timeout_min_ms, limits.session_timeout_max_ms) == (6_000, 1_800_000)
    assert (limits.initial_rebalance_delay_ms, limits.expiry_interval_ms) == (3_000, 600_000)
    assert (limits.consumer_session_timeout_ms, limits.consumer_heartbeat_ms) == (45_000, 5_000)
    assert (limits.offset_metadata_max_bytes, limits.new_member_timeout_ms) == (4_096, 300_000)


def test_two_transactions_on_one_partition() -> None:
    stage = Stage()
    stage_offsets(stage, 1, 10)
    stage_offsets(stage, 2, 20)
    end(stage, 2, commit=True)
    assert stage.shard.fetch("g", [T0], stable=True)[0].error is not None
    end(stage, 1, commit=False)
    assert stage.shard.fetch("g", [T0], stable=True)[0].offset == 20


def test_a_group_goes_with_its_offsets() -> None:
    stage = Stage()
    with pytest.raises(GroupIdNotFound):
        stage.shard.delete("g")
    stage.enter("g", "a")
    stage.sync("g", "a", {})
    stage.commit("g", "a", 5)
    with pytest.raises(NonEmptyGroup):
        stage.shard.delete("g")
    stage.leave("g", stage.leaver("a"))
    stage.perform("g", lambda _now: stage.shard.delete("g"))
    stage.crash()
    assert not stage.shard.exists("g")
    assert stage.committed("g") == -1


def test_offsets_that_are_read_are_not_deleted() -> None:
    stage = Stage()
    with pytest.raises(GroupIdNotFound):
        stage.shard.delete_offsets("g", [T0])
    stage.enter("g", "a", topics="t")
    stage.sync("g", "a", {})
    for topic in "tu":
        stage.commit("g", "a", 5, topic=topic)
    step, results = stage.shard.delete_offsets("g", [T0, TopicPartition("u", 0), TopicPartition("u", 9)])
    assert isinstance(results[T0], GroupSubscribedToTopic)
    assert results[TopicPartition("u", 0)] is None
    assert results[TopicPartition("u", 9)] is None
    assert [entry.key for entry in step.entries] == [OffsetKey("g", "u", 0)]


def test_members_that_are_not_consumers_keep_all_offsets() -> None:
    stage = Stage()
    stage.enter("g", "a", protocol_type="connect")
    with pytest.raises(NonEmptyGroup):
        stage.shard.delete_offsets("g", [T0])


class TestRetention:
    def expire(self, stage: Stage) -> None:
        stage.perform("g", lambda now: stage.shard.expire("g", now))

    def test_of_a_group_without_members_it_counts_from_the_commit(self) -> None:
        stage = Stage()
        stage.commit("g", None, 5)
        stage.now_ms += 7 * DAY_MS - 1
        self.expire(stage)
        assert stage.committed("g") == 5
        stage.now_ms += 1
        self.expire(stage)
        assert not stage.shard.exists("g")

    def test_of_others_from_the_last_member(self) -> None:
        stage = Stage()
        stage.enter("g", "a", session_ms=1_000_000_000, rebalance_ms=1_000_000_000)
        stage.sync("g", "a", {})
        stage.commit("g", "a", 5)
        stage.commit("g", "a", 5, topic="u")
        stage.now_ms += 8 * DAY_MS
        self.expire(stage)
        assert (stage.committed("g"), stage.committed("g", "u")) == (5, -1), "a topic that is read stays"
        stage.leave("g", stage.leaver("a"))
        stage.now_ms += 7 * DAY_MS - 1
        self.expire(stage)
        assert stage.committed("g") == 5
        stage.now_ms += 1
        self.expire(stage)
        assert not stage.shard.exists("g")
        stage.crash()
        assert not stage.shard.exists("g")

    def test_offsets_do_not_expire_during_a_rebalance(self) -> None:
        stage = Stage()
        stage.commit("g", None, 5)
        stage.enter("g", "a")
        assert stage.group("g").state is ClassicState.COMPLETING
        stage.now_ms += 8 * DAY_MS
        self.expire(stage)
        assert stage.committed("g") == 5

    def test_a_date_of_the_commit_itself_counts_first(self) -> None:
        stage = Stage()
        stage.shard.offsets.replay(OffsetKey("g", "t", 0), OffsetValue(5, -1, "", 0, 2_000))
        stage.now_ms = 2_000
        self.expire(stage)
        assert not stage.shard.exists("g")


def test_a_deleted_topic_takes_its_offsets() -> None:
    stage = Stage()
    for topic in "tu":
        stage.commit("g", None, 5, topic=topic)
        stage.commit("h", None, 5, topic=topic)
    stage_offsets(stage, 7, 9)
    stage.perform("g", lambda _now: GroupStep(stage.shard.offsets.forget_topic("t")))
    end(stage, 7, commit=True)
    assert [stage.committed(group, topic) for group in "gh" for topic in "tu"] == [-1, 5, -1, 5]


def test_a_consumer_that_names_itself_has_to_be_a_member() -> None:
    stage = Stage()
    stage.make_topic("t", 1)
    for epoch in (0, 1):
        with pytest.raises(UnknownMemberId):
            stage.shard.check_fetch("g", "unknown", epoch)
    stage.shard.check_fetch("g", None, 1)
    stage.shard.check_fetch("g", "unknown", -1)
    stage.pulse("g", "a")
    stage.shard.check_fetch("g", "a-member", 1)
    for epoch in (0, 2):
        with pytest.raises(StaleMemberEpoch):
            stage.shard.check_fetch("g", "a-member", epoch)
    stage.enter("classic", "b")
    stage.shard.check_fetch("classic", "unknown", 1)
