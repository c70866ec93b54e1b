"""Groups as an administrator sees them: kinds, states, members and their topics."""

from uuid import UUID

import pytest
from tests.support.group_stage import Stage

from tidemill.groups.core.group_details import details_of, readers_of, summary_of, topics_of
from tidemill.groups.core.messages import GroupStep
from tidemill.groups.core.offsets import OffsetCommit
from tidemill.groups.core.overview import NameOf
from tidemill.groups.core.subscriptions import write_assignment
from tidemill.model.errors import GroupIdNotFound
from tidemill.model.topics import TopicPartition


def name_of(stage: Stage) -> NameOf:
    def name(topic_id: UUID) -> str | None:
        return next((shape.name for shape in stage.topics.values() if shape.topic_id == topic_id), None)

    return name


def no_name(_: UUID) -> None:
    return None


def test_a_classic_group_shows_generation_leader_and_assignments() -> None:
    stage = Stage()
    stage.enter("g", "a", topics="t,u", instance="host-1")
    stage.sync("g", "a", {"a": write_assignment([TopicPartition("t", 1), TopicPartition("t", 0)])})
    stage.commit("g", "a", 7)
    details = details_of(stage.shard, "g", no_name)
    assert details.summary == ("g", "classic", "Stable", "consumer", "range", 1)
    assert (details.epoch, details.target_epoch) == (1, 1)
    [member] = details.members
    assert details.leader == member.member_id
    assert (member.kind, member.client_host, member.instance_id, member.epoch) == ("classic", "/1.2.3.4", "host-1", 1)
    assert (member.topics, member.assigned, member.target) == (("t", "u"), {"t": [0, 1]}, {"t": [0, 1]})
    assert details.offsets[TopicPartition("t", 0)].offset == 7
    assert topics_of(stage.shard, "g") == {"t", "u"}
    assert (readers_of(stage.shard, "t"), readers_of(stage.shard, "u")) == (["g"], ["g"])
    assert readers_of(stage.shard, "v") == []


def test_members_that_are_no_consumers_and_damaged_assignments_have_no_topics() -> None:
    stage = Stage()
    stage.enter("connect", "a", protocol_type="connect")
    stage.sync("connect", "a", {"a": b"\xff"})
    stage.enter("odd", "b")
    stage.sync("odd", "b", {"b": b"\x00\x01\xff\xff\xff"})
    for group_id in ("connect", "odd"):
        [member] = details_of(stage.shard, group_id, no_name).members
        assert member.assigned == {}
    assert topics_of(stage.shard, "connect") == set()


def test_a_consumer_group_shows_epochs_the_target_and_its_pattern() -> None:
    stage = Stage()
    stage.make_topic("t", 2)
    stage.pulse("g", "a", rack_id="r1", server_assignor="range")
    stage.settle("g", "a")
    stage.pulse("g", "b", topic_names=None, topic_regex="t.*")
    details = details_of(stage.shard, "g", name_of(stage))
    assert (details.summary.kind, details.summary.state, details.summary.assignor) == (
        "consumer",
        "Reconciling",
        "range",
    )
    assert details.leader is None
    first, second = details.members
    assert (first.rack_id, first.assigned, first.topics) == ("r1", {"t": [0, 1]}, ("t",))
    assert sorted([*first.target["t"], *second.target["t"]]) == [0, 1]
    assert (second.pattern, second.assigned, second.kind) == ("t.*", {}, "consumer")
    assert details.epoch == details.target_epoch > first.epoch
    assert topics_of(stage.shard, "g") == {"t"}, "a topic that is named without a committed offset"


def test_partitions_of_deleted_topics_have_no_name() -> None:
    stage = Stage()
    stage.make_topic("t", 1)
    stage.settle("g", "a")
    [member] = details_of(stage.shard, "g", no_name).members
    assert member.assigned == {}


def test_a_group_of_offsets_only_is_empty_and_an_unknown_one_is_refused() -> None:
    stage = Stage()
    stage.commit("g", None, 3, topic="t")
    assert summary_of(stage.shard, "g") == ("g", "classic", "Empty", "", "", 0)
    assert details_of(stage.shard, "g", no_name).members == ()
    assert topics_of(stage.shard, "g") == {"t"}
    assert summary_of(stage.shard, "other") is None
    with pytest.raises(GroupIdNotFound):
        details_of(stage.shard, "other", no_name)


def test_an_offset_that_a_transaction_may_change_is_unstable() -> None:
    stage = Stage()
    stage.commit("g", None, 3, topic="t")
    staged = [OffsetCommit("t", 0, 5)]
    stage.perform("g", lambda now: GroupStep(stage.shard.offsets.stage("g", 9, staged, now)))
    details = details_of(stage.shard, "g", no_name)
    assert details.unstable == {TopicPartition("t", 0)}
    assert details.offsets[TopicPartition("t", 0)].offset == 3
