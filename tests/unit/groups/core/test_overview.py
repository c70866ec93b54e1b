"""The members, the offsets and the sizes of all groups, for SQL and metrics."""

import json

from tests.support.group_stage import Stage

from tidemill.groups.core.classic_group import ClassicState
from tidemill.groups.core.entries import GroupEntry, OffsetKey, OffsetValue, StagedKey
from tidemill.groups.core.offsets import UNKNOWN_COMMITTER, OffsetCommitter
from tidemill.groups.core.overview import (
    NEVER,
    RECENT_MS,
    CommittedOffset,
    GroupSize,
    SeenGroup,
    SeenMember,
    SeenOffset,
    committed_of,
    committer_among,
    groups_of,
    members_of,
    offsets_of,
    sizes_of,
)
from tidemill.groups.core.subscriptions import write_assignment
from tidemill.model.topics import TopicPartition


def classic(protocol_type: str = "consumer", assignment: bytes = b"") -> Stage:
    """A group of one member that has its assignment, at 1,000 ms."""
    stage = Stage()
    stage.enter("g", "a", session_ms=6_000, protocol_type=protocol_type)
    stage.sync("g", "a", {"a": assignment})
    return stage


def members(stage: Stage) -> list[SeenMember]:
    return list(members_of(stage.shard, lambda _: None))


def test_a_member_of_a_classic_group_is_shown_with_its_assignment() -> None:
    given = write_assignment([TopicPartition("t", 1), TopicPartition("t", 0), TopicPartition("u", 2)])
    stage = classic(assignment=given)
    assert members(stage) == [
        SeenMember(
            group_id="g",
            member_id=stage.client("a").member_id,
            generation=1,
            protocol_type="consumer",
            protocol="range",
            client_id="a",
            client_host="/1.2.3.4",
            assignment={"t": [0, 1], "u": [2]},
            leads=True,
            heard_ms=1_000,
            state=ClassicState.STABLE,
            metadata='{"topics": ["t"]}',
        )
    ]


def test_a_member_that_is_no_consumer_is_shown_without_partitions() -> None:
    [member] = members(classic("connect", write_assignment([TopicPartition("t", 1)])))
    assert (member.protocol_type, member.assignment) == ("connect", {})
    assert list(json.loads(member.metadata)) == ["protocol"], "the bytes of another protocol, as Base64"
    [member] = members(classic("consumer", b"\0\0not an assignment"))
    assert member.assignment == {}


def test_a_member_is_shown_with_the_time_of_its_last_heartbeat() -> None:
    stage = classic()
    stage.wait(2_000)
    assert members(stage)[0].heard_ms == 1_000
    stage.beat("g", "a")
    assert members(stage)[0].heard_ms == 3_000


def test_a_follower_does_not_lead() -> None:
    stage = Stage()
    for name in "ab":
        stage.enter("g", name)
    stage.join("g", "a")
    assert sorted(each.leads for each in members(stage)) == [False, True]
    assert {each.protocol for each in members(stage)} == {"range"}


def test_a_member_of_a_consumer_group_is_shown() -> None:
    stage = Stage()
    stage.make_topic("t", 2)
    stage.pulse("new", "a")
    [member] = members_of(stage.shard, {stage.topics["t"].topic_id: "t"}.get)
    assert member._replace(member_id="") == SeenMember(
        "new", "", 1, "consumer", "uniform", "a", "/1.2.3.4", {"t": [0, 1]}, False, 1_000, "Stable", '{"topics": ["t"]}'
    )


def test_committed_offsets_are_shown_with_and_without_their_details() -> None:
    stage = Stage()
    stage.commit("g", None, 5)
    stage.commit("h", None, 7, partition=3)
    assert list(offsets_of(stage.shard)) == [
        SeenOffset("g", "t", 0, 5, -1, "", 1_000),
        SeenOffset("h", "t", 3, 7, -1, "", 1_000),
    ]
    assert list(committed_of(stage.shard)) == [
        CommittedOffset("g", TopicPartition("t", 0), 5),
        CommittedOffset("h", TopicPartition("t", 3), 7),
    ]


def test_the_size_of_a_group_counts_its_members() -> None:
    stage = classic()
    stage.commit("offsets only", None, 5)
    assert sorted(sizes_of(stage.shard)) == [
        GroupSize("g", ClassicState.STABLE, 1, 1),
        GroupSize("offsets only", ClassicState.EMPTY, 0, 0),
    ]


def test_a_group_is_shown_with_its_state_and_its_rebalances() -> None:
    stage = classic()
    stage.commit("offsets only", None, 5)
    group = stage.shard.groups["g"]
    group.rebalanced_ms.extend([500, 900])
    leader = stage.client("a").member_id
    shown = SeenGroup("g", "classic", "Stable", 1, "consumer", "range", leader, 1, 1_000, 900, 2)
    none = SeenGroup("offsets only", "classic", "Empty", 0, "", "", "", 0, NEVER, NEVER, 0)
    assert sorted(groups_of(stage.shard, 1_000)) == [shown, none]
    [later, _] = sorted(groups_of(stage.shard, 500 + RECENT_MS))
    assert later.recent_rebalances == 1


def test_a_consumer_group_is_shown_without_a_leader() -> None:
    stage = Stage()
    stage.make_topic("t", 2)
    stage.pulse("new", "a")
    [group] = groups_of(stage.shard, 1_000)
    assert group == SeenGroup("new", "consumer", "Stable", 1, "consumer", "uniform", "", 1, group.state_ms)


def test_the_committer_is_the_member_that_a_commit_names() -> None:
    stage = classic()
    member_id = stage.client("a").member_id
    asked = OffsetCommitter(member_id, 1, "proxy", "/9.9.9.9")
    assert committer_among(stage.shard, "g", asked) == OffsetCommitter(member_id, 1, "a", "/1.2.3.4")
    admin = OffsetCommitter("", -1, "admin", "/9.9.9.9")
    assert committer_among(stage.shard, "g", admin) == admin


def test_a_staged_commit_that_was_aborted_is_not_named_as_committer() -> None:
    shard, place, me = Stage().shard, TopicPartition("t", 0), OffsetCommitter("m", 1, "me", "/1.2.3.4")
    value = OffsetValue(5, commit_ms=7)
    entry = GroupEntry(OffsetKey("g", *place), value)
    shard.replay(entry)
    assert shard.offsets.committer_of("g", place, value) == UNKNOWN_COMMITTER
    shard.offsets.note_committer([entry], me)
    assert shard.offsets.committer_of("g", place, value) == me
    staged = GroupEntry(StagedKey(9, "g", *place), OffsetValue(6, commit_ms=8))
    shard.replay(staged)
    shard.offsets.note_committer([staged], me._replace(member_id="other"))
    for each in shard.offsets.end_transaction(9, commit=False):
        shard.replay(each)
    assert shard.offsets.committer_of("g", place, value) == UNKNOWN_COMMITTER


def test_a_consumer_group_is_empty_since_its_last_member_left_or_failed() -> None:
    for verb in ("leave", "fail"):
        stage = Stage()
        stage.make_topic("t", 2)
        for name in "ab":
            stage.pulse("g", name)
        stage.wait(1_000)
        stage.pulse("g", "a", member_epoch=-1)
        [group] = groups_of(stage.shard, stage.now_ms)
        assert (group.members, group.state_ms) == (1, NEVER)
        stage.wait(2_000)
        if verb == "leave":
            stage.pulse("g", "b", member_epoch=-1)
            expected_ms = 4_000
        else:
            stage.wait(60_000)
            expected_ms = 1_000 + stage.limits.consumer_session_timeout_ms
        [group] = groups_of(stage.shard, stage.now_ms)
        assert (group.state, group.members, group.state_ms) == ("Empty", 0, expected_ms)
