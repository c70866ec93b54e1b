"""Running groups that change their protocol, one member at a time."""

from itertools import chain

import pytest
from tests.support.group_stage import Stage

from tidemill.groups.core.classic_group import ClassicState
from tidemill.groups.core.consumer_group import ConsumerGroup
from tidemill.groups.core.limits import GroupLimits
from tidemill.groups.core.subscriptions import read_assignment, write_assignment
from tidemill.model.errors import (
    FencedInstanceId,
    IllegalGeneration,
    InconsistentGroupProtocol,
    KafkaError,
    RebalanceInProgress,
    UnknownMemberId,
    UnreleasedInstanceId,
)
from tidemill.model.topics import TopicPartition

T = [TopicPartition("t", index) for index in range(4)]


@pytest.fixture
def stage() -> Stage:
    """A classic group of a and b on a topic with four partitions."""
    stage = Stage()
    stage.make_topic("t", 4)
    for name in "ab":
        stage.enter("g", name)
    stage.join("g", "a")
    stage.sync("g", "b")
    stage.sync("g", "a", {"a": write_assignment(T[:2]), "b": write_assignment(T[2:])})
    stage.commit("g", "a", 5)
    stage.reported()
    return stage


def classic_round(stage: Stage, name: str, *, keeps: bool = False) -> None:
    """What a classic client does after "join again": eager ones give up everything first."""
    owned = has(stage, name) if keeps else []
    stage.join("g", name, owned=[TopicPartition("t", index) for index in owned])
    stage.sync("g", name)


def follow(stage: Stage, name: str, *, keeps: bool = False) -> None:
    try:
        stage.beat("g", name)
    except RebalanceInProgress:
        classic_round(stage, name, keeps=keeps)


def has(stage: Stage, name: str) -> list[int]:
    return sorted(index for indexes in read_assignment(stage.client(name).assignment).values() for index in indexes)


def test_a_group_without_a_generation_is_upgraded_by_the_first_protocol_of_its_members() -> None:
    stage = Stage(GroupLimits(initial_rebalance_delay_ms=3_000))
    stage.make_topic("t", 1)
    stage.enter("g", "a")
    assert stage.group("g").protocol is None
    stage.pulse("g", "c")
    stage.settle("g", "c")
    group = stage.shard.groups["g"]
    assert isinstance(group, ConsumerGroup)
    assert {member.topic_names for member in group.members.values()} == {("t",)}
    assert len(group.members) == 2


def test_the_first_new_member_upgrades_the_group(stage: Stage) -> None:
    generation = stage.client("a").generation
    answer = stage.pulse("g", "c")
    assert answer.member_epoch == generation + 1
    assert stage.indexes("c") == []
    assert stage.shard.groups["g"].kind == "consumer"
    assert stage.committed("g") == 5
    for name in "ab":
        follow(stage, name)
    stage.pulse("g", "c")
    assert sorted(has(stage, "a") + has(stage, "b") + stage.indexes("c")) == [0, 1, 2, 3]
    assert stage.indexes("c")
    stage.commit("g", "b", 6)
    stage.beat("g", "a")
    stage.crash()
    stage.beat("g", "a")
    stage.pulse("g", "c")
    assert stage.shard.groups["g"].state == "Stable"


def test_cooperative_members_keep_unmoved_partitions(stage: Stage) -> None:
    stage.pulse("g", "c")
    before = {name: has(stage, name) for name in "ab"}
    with pytest.raises(RebalanceInProgress):
        stage.beat("g", "a")
    classic_round(stage, "a", keeps=True)
    assert set(has(stage, "a")) < set(before["a"]) or has(stage, "a") == before["a"]
    stage.pulse("g", "c")
    for _ in range(3):
        for name in "ab":
            follow(stage, name, keeps=True)
        stage.pulse("g", "c")
    shares = [has(stage, "a"), has(stage, "b"), stage.indexes("c")]
    assert sorted(chain(*shares)) == [0, 1, 2, 3]
    assert all(set(has(stage, name)) <= set(before[name]) for name in "ab"), "nothing moved that need not"


def test_the_way_there_and_back(stage: Stage) -> None:
    stage.pulse("g", "c")
    for name in "ab":
        follow(stage, name)
    stage.leave("g", stage.leaver("a"), stage.leaver("b"))
    stage.settle("g", "c")
    assert stage.indexes("c") == [0, 1, 2, 3]
    assert stage.shard.groups["g"].kind == "consumer"
    stage.clients.pop("a")
    stage.enter("g", "a")
    assert stage.client("a").generation > 0
    stage.sync("g", "a")
    stage.pulse("g", "c")
    stage.pulse("g", "c")
    follow(stage, "a")
    assert len(has(stage, "a")) == 2
    stage.pulse("g", "c", member_epoch=-1)
    group = stage.group("g")
    assert (group.kind, group.state) == ("classic", ClassicState.PREPARING)
    assert stage.committed("g") == 5
    with pytest.raises(KafkaError):
        stage.beat("g", "a")
    stage.join("g", "a")
    stage.sync("g", "a", {"a": write_assignment(T)})
    assert has(stage, "a") == [0, 1, 2, 3]
    stage.crash()
    assert stage.group("g").state is ClassicState.STABLE


def test_stale_classic_members_are_fenced(stage: Stage) -> None:
    stage.pulse("g", "c")
    follow(stage, "a")
    stage.client("a").generation -= 1
    for act in (lambda: stage.beat("g", "a"), lambda: stage.sync("g", "a"), lambda: stage.commit("g", "a", 9)):
        with pytest.raises(IllegalGeneration):
            act()
    stage.client("z").member_id, stage.client("z").generation = "stranger", 1
    for act in (lambda: stage.beat("g", "z"), lambda: stage.sync("g", "z"), lambda: stage.commit("g", "z", 9)):
        with pytest.raises(UnknownMemberId):
            act()
    assert stage.committed("g") == 5


def test_classic_members_commit_in_old_versions(stage: Stage) -> None:
    stage.pulse("g", "c")
    client = stage.client("a")
    stage.shard.check_commit("g", client.generation, client.member_id, None, names_epochs=False)


def test_a_sync_names_its_protocol(stage: Stage) -> None:
    stage.pulse("g", "c")
    with pytest.raises(RebalanceInProgress):
        stage.sync("g", "a")
    stage.join("g", "a")
    stage.sync("g", "a", protocol_type="consumer", protocol="range")
    with pytest.raises(InconsistentGroupProtocol):
        stage.sync("g", "a", protocol_type="connect")
    with pytest.raises(InconsistentGroupProtocol):
        stage.sync("g", "a", protocol="sticky")


def test_a_classic_member_that_does_not_join_again_is_removed(stage: Stage) -> None:
    stage.pulse("g", "c")
    for _ in range(8):
        stage.wait(9_000)
        stage.pulse("g", "c")
        with pytest.raises(KafkaError):
            stage.beat("g", "a")
    with pytest.raises(UnknownMemberId):
        stage.beat("g", "a")
    stage.settle("g", "c")
    assert stage.indexes("c") == [0, 1, 2, 3]


def test_a_last_new_member_that_dies_turns_the_group_back(stage: Stage) -> None:
    stage.pulse("g", "c")
    for name in "ab":
        follow(stage, name)
    for _ in range(5):
        stage.wait(9_000)
        for name in "ab":
            try:
                follow(stage, name)
            except KafkaError:
                assert stage.shard.groups["g"].kind == "classic"
    assert stage.shard.groups["g"].kind == "classic"


def test_waiting_members_are_sent_to_join_again(stage: Stage) -> None:
    stage.enter("g", "d")
    stage.reported()
    stage.pulse("g", "c")
    assert [(name, type(answer)) for name, answer in stage.reported()] == [("d", RebalanceInProgress)]


def test_static_members_change_their_protocol_in_place(stage: Stage) -> None:
    stage.join("g", "s", instance="one")
    stage.join("g", "a")
    stage.join("g", "b")
    for name in "sb":
        stage.sync("g", name)
    stage.sync("g", "a", {"a": write_assignment(T[:1]), "b": write_assignment(T[1:2]), "s": write_assignment(T[2:])})
    stage.pulse("g", "n", instance_id="one")
    assert stage.indexes("n") == [2, 3]
    with pytest.raises(FencedInstanceId):
        stage.beat("g", "s")
    with pytest.raises(UnreleasedInstanceId):
        stage.pulse("g", "m", instance_id="one")
