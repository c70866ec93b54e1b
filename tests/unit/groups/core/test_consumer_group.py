"""Consumer groups of KIP-848: reconciliation, fencing, static members, patterns, changes of topics and of kind."""

import pytest
from tests.support.group_stage import Stage

from tidemill.groups.core.consumer_group import MemberState, TopicView, reconcile
from tidemill.groups.core.consumer_heartbeat import HeartbeatAnswer, HeartbeatRequest, decision_size
from tidemill.groups.core.entries import CurrentValue
from tidemill.groups.core.limits import GroupLimits
from tidemill.groups.core.overview import members_of
from tidemill.model.errors import (
    FencedInstanceId,
    FencedMemberEpoch,
    GroupIdNotFound,
    GroupMaxSizeReached,
    InconsistentGroupProtocol,
    InvalidRegularExpression,
    InvalidRequest,
    KafkaStorageError,
    StaleMemberEpoch,
    UnknownMemberId,
    UnreleasedInstanceId,
    UnsupportedAssignor,
)


@pytest.fixture
def stage() -> Stage:
    stage = Stage()
    stage.make_topic("t", 4)
    return stage


def test_the_first_member_gets_everything_at_once(stage: Stage) -> None:
    answer = stage.pulse("g", "a")
    assert answer.member_epoch == 1
    assert answer.heartbeat_ms == 5_000
    assert stage.indexes("a") == [0, 1, 2, 3]
    size = len(stage.journal)
    assert stage.pulse("g", "a").assigned is None
    assert len(stage.journal) == size, "a plain heartbeat writes nothing"


def test_a_heartbeat_is_large_only_where_it_may_assign(stage: Stage) -> None:
    """The coordinator takes large decisions off the event loop; a plain heartbeat must not be one of them."""
    stage.settle("g", "a")
    group = stage.shard.consumer("g")
    plain = HeartbeatRequest("g", "a-member", stage.client("a").epoch, owned=stage.client("a").owned)
    everything = 4 + 1 + 1 + 4  # what it owns, the members, the topics that they name, the partitions of all topics
    sizes = {
        plain: 4,
        plain._replace(owned=None): 0,
        plain._replace(member_epoch=0): everything,
        plain._replace(topic_names=("t", "u")): everything + 2,
        plain._replace(topic_regex="t.*"): everything,
        plain._replace(server_assignor="uniform"): everything,
    }
    assert {request: decision_size(group, request, stage.catalog) for request in sizes} == sizes
    assert decision_size(None, plain, stage.catalog) == 4 + 4
    stage.make_topic("v", 2)
    assert decision_size(group, plain, stage.catalog) == everything + 2, "the topics have changed"


def test_a_partition_is_given_after_it_was_given_up(stage: Stage) -> None:
    stage.pulse("g", "a")
    stage.pulse("g", "b")
    assert stage.indexes("b") == []
    assert stage.shard.groups["g"].state == "Reconciling"
    kept = stage.client("a").owned
    answer = stage.pulse("g", "a")
    assert answer.member_epoch == 1, "its epoch moves when it has given up what it must"
    assert answer.assigned is not None
    assert answer.assigned < kept
    stage.client("a").owned = kept
    stage.pulse("g", "a")
    stage.client("a").owned = kept
    stage.pulse("g", "b")
    assert stage.indexes("b") == [], "a still lists them"
    stage.client("a").owned = answer.assigned
    assert stage.pulse("g", "a").member_epoch == 2
    stage.pulse("g", "b")
    assert sorted(stage.indexes("a") + stage.indexes("b")) == [0, 1, 2, 3]
    assert len(stage.indexes("b")) == 2
    assert stage.shard.groups["g"].state == "Stable"


def test_partitions_are_sent_until_the_member_owns_them(stage: Stage) -> None:
    """An answer is lost, and the client sends the same plain heartbeat again: it says nothing of what it has."""
    stage.pulse("g", "a")
    stage.pulse("g", "a")
    stage.pulse("g", "b")
    lost = stage.pulse("g", "a", owned=None)
    assert lost.assigned is not None, "a has to give up two"
    again = stage.pulse("g", "a", owned=None)
    assert (again.assigned, again.member_epoch) == (lost.assigned, 1)
    size = len(stage.journal)
    assert stage.pulse("g", "a", owned=None).assigned == lost.assigned
    assert len(stage.journal) == size, "to send it again writes nothing"
    stage.pulse("g", "a")  # it has given them up
    assert stage.pulse("g", "a", owned=None).assigned is None, "it knows, and has said so"
    lost = stage.pulse("g", "b", owned=None)
    assert lost.assigned is not None, "b gets what was given up"
    assert stage.pulse("g", "b", owned=None).assigned == lost.assigned
    assert stage.pulse("g", "b", owned=lost.assigned).assigned is None
    assert stage.pulse("g", "b", owned=None).assigned is None


def test_a_full_heartbeat_is_answered_with_the_partitions_that_the_member_has(stage: Stage) -> None:
    """A client that lost an answer sends all its fields."""
    stage.settle("g", "a")
    assert stage.pulse("g", "a").assigned is None
    full = {"rebalance_timeout_ms": 30_000, "topic_names": ("t",)}
    assert stage.pulse("g", "a", **full).assigned == stage.client("a").owned
    assert stage.pulse("g", "a", **full, owned=None).assigned is None, "it leaves out what it owns"
    assert stage.pulse("g", "a", rebalance_timeout_ms=30_000).assigned is None, "it leaves out its topics"
    assert stage.pulse("g", "a", topic_names=("t",)).assigned is None, "it leaves out its timeout"


def test_members_leave_and_the_rest_takes_over(stage: Stage) -> None:
    for name in "abc":
        stage.pulse("g", name)
    stage.settle("g", "a b c")
    assert stage.pulse("g", "b", member_epoch=-1) == HeartbeatAnswer("b-member", -1, 0)
    stage.settle("g", "a c")
    assert sorted(stage.indexes("a") + stage.indexes("c")) == [0, 1, 2, 3]
    with pytest.raises(UnknownMemberId):
        stage.pulse("g", "b", member_epoch=3)


def test_a_silent_member_is_fenced_after_its_session(stage: Stage) -> None:
    for name in "ab":
        stage.pulse("g", name)
    stage.settle("g", "a b")
    stage.wait(30_000)
    stage.pulse("g", "a")
    stage.wait(15_000)
    with pytest.raises(UnknownMemberId):
        stage.pulse("g", "b")
    stage.settle("g", "a")
    assert stage.indexes("a") == [0, 1, 2, 3]


def test_a_member_that_does_not_give_up_in_time_is_fenced(stage: Stage) -> None:
    stage.pulse("g", "a")
    everything = stage.client("a").owned
    stage.pulse("g", "b")
    for _ in range(3):
        stage.wait(9_990)
        stage.client("a").owned = everything
        stage.pulse("g", "a")
        stage.client("a").owned = everything
        stage.pulse("g", "b")
    stage.wait(10_020)
    with pytest.raises(UnknownMemberId):
        stage.pulse("g", "a")


@pytest.mark.parametrize("epoch", [1, 3, 99])
def test_an_epoch_that_is_not_the_members_is_fenced(stage: Stage, epoch: int) -> None:
    stage.pulse("g", "a")
    stage.pulse("g", "a", topic_names=("t", "u"))
    assert stage.client("a").epoch == 2
    with pytest.raises(FencedMemberEpoch):
        stage.pulse("g", "a", member_epoch=epoch, owned=None)


def test_the_last_epoch_is_taken_from_a_member_that_missed_the_answer(stage: Stage) -> None:
    stage.pulse("g", "a")
    owned = stage.client("a").owned
    stage.make_topic("t", 6)
    stage.pulse("g", "a")
    assert stage.client("a").epoch == 2
    answer = stage.pulse("g", "a", member_epoch=1, owned=owned)
    assert answer.member_epoch == 2
    assert answer.assigned is not None
    assert len(answer.assigned) == 6


def test_a_fenced_member_joins_again_with_epoch_0(stage: Stage) -> None:
    stage.pulse("g", "a")
    stage.client("a").epoch = 0
    answer = stage.pulse("g", "a")
    assert answer.assigned is not None
    assert len(answer.assigned) == 4


def test_an_incomplete_join_is_rejected(stage: Stage) -> None:
    for changes in (
        {"member_id": ""},
        {"member_epoch": -3},
        {"rebalance_timeout_ms": -1},
        {"owned": None},
        {"owned": frozenset({(stage.topics["t"].topic_id, 0)})},
        {"topic_names": None},
        {"instance_id": ""},
        {"rack_id": ""},
        {"member_epoch": -2},
    ):
        with pytest.raises(InvalidRequest):
            stage.pulse("g", "a", **changes)
    with pytest.raises(UnsupportedAssignor):
        stage.pulse("g", "a", server_assignor="fair")
    assert not stage.journal
    assert not stage.shard.groups


def test_the_largest_size(stage: Stage) -> None:
    small = Stage(GroupLimits(consumer_members_max=1))
    small.pulse("g", "a")
    with pytest.raises(GroupMaxSizeReached):
        small.pulse("g", "b")
    small.pulse("g", "a")


def test_new_topics_and_partitions_are_assigned(stage: Stage) -> None:
    stage.pulse("g", "a", topic_names=("t", "later"))
    assert len(stage.client("a").owned) == 4
    stage.make_topic("other", 3)
    assert stage.pulse("g", "a").member_epoch == 1, "a topic without readers changes nothing"
    stage.make_topic("later", 2)
    assert stage.pulse("g", "a").member_epoch == 2
    stage.make_topic("t", 5)
    stage.pulse("g", "a")
    assert len(stage.client("a").owned) == 7
    stage.drop_topic("later")
    stage.settle("g", "a")
    assert len(stage.client("a").owned) == 5


def test_a_pattern_follows_the_topics(stage: Stage) -> None:
    stage.make_topic("orders-eu", 2)
    stage.pulse("g", "a", topic_names=(), topic_regex="^orders-.*")
    assert len(stage.client("a").owned) == 2
    stage.make_topic("orders-us", 3)
    stage.pulse("g", "a")
    assert len(stage.client("a").owned) == 5
    stage.make_topic("__consumer_offsets", 8)
    stage.pulse("g", "a", topic_regex=".*")
    stage.settle("g", "a")
    assert len(stage.client("a").owned) == 9, "what is internal stays out of patterns"
    stage.pulse("g", "a", topic_regex="", topic_names=("t",))
    stage.settle("g", "a")
    assert len(stage.client("a").owned) == 4
    with pytest.raises(InvalidRegularExpression):
        stage.pulse("g", "a", topic_regex="(")
    with pytest.raises(InvalidRegularExpression):
        stage.pulse("g", "a", topic_regex="a" * 2_000)


def test_a_pattern_selects_only_topics_that_the_client_may_see(stage: Stage) -> None:
    for name in ("orders-eu", "orders-secret"):
        stage.make_topic(name, 2)
    every = {stage.catalog.by_name[name].topic_id: name for name in stage.catalog.by_name}

    def view(key: int, *names: str) -> TopicView:
        return TopicView(key, lambda name: name in names)

    def owned(member: str) -> set[str]:
        return {every[topic] for topic, _ in stage.client(member).owned}

    stage.pulse("g", "a", topic_names=(), topic_regex="orders-.*", view=view(1, "orders-eu"))
    assert owned("a") == {"orders-eu"}
    stage.pulse("g", "a", view=view(2, "orders-eu", "orders-secret"))
    assert owned("a") == {"orders-eu", "orders-secret"}, "a right was granted"
    stage.pulse("g", "a", view=view(3, "orders-secret"))
    stage.settle("g", "a")
    assert owned("a") == {"orders-secret"}, "a right was revoked"
    size = len(stage.journal)
    stage.pulse("g", "a", view=view(4, "orders-secret", "t"))
    assert len(stage.journal) == size, "rights on other topics change nothing"


def test_members_with_other_rights_divide_the_topics_of_a_pattern(stage: Stage) -> None:
    for name in ("orders-eu", "orders-secret"):
        stage.make_topic(name, 2)
    views = {
        "a": TopicView(1, lambda name: name == "orders-eu"),
        "b": TopicView(1, lambda name: name != "orders-eu"),
    }
    for _ in range(3):
        for name, view in views.items():
            joins = {"topic_names": (), "topic_regex": "orders-.*"} if not stage.client(name).epoch else {}
            stage.pulse("g", name, view=view, **joins)
    secret = stage.catalog.by_name["orders-secret"].topic_id
    assert {topic for topic, _ in stage.client("b").owned} == {secret}
    assert len(stage.client("a").owned) == 2
    assert secret not in {topic for topic, _ in stage.client("a").owned}


def test_a_new_coordinator_does_not_forget_the_rights_of_members(stage: Stage) -> None:
    for name in ("orders-eu", "orders-secret"):
        stage.make_topic(name, 2)
    hidden = TopicView(1, lambda name: name != "orders-secret")
    stage.pulse("g", "a", topic_names=(), topic_regex="orders-.*", view=hidden)
    stage.pulse("g", "b", topic_names=("t",), view=hidden)
    group = stage.shard.consumer("g")
    group.views.clear()  # what a new coordinator knows
    group.catalog_version = -1
    epoch = group.epoch
    stage.pulse("g", "b", view=hidden)
    assert group.epoch == epoch, "nothing has changed"
    stage.make_topic("orders-us", 1)
    stage.pulse("g", "b", view=hidden)
    stage.pulse("g", "a", view=hidden)
    secret = stage.catalog.by_name["orders-secret"].topic_id
    assert secret not in {topic for topic, _ in stage.client("a").owned}


def test_range_gives_neighbours(stage: Stage) -> None:
    for name in "ab":
        stage.pulse("g", name, server_assignor="range")
    stage.settle("g", "a b")
    assert (stage.indexes("a"), stage.indexes("b")) == ([0, 1], [2, 3])


def test_round_robin_deals_in_turn(stage: Stage) -> None:
    for name in "ab":
        stage.pulse("g", name, server_assignor="roundrobin")
    stage.settle("g", "a b")
    assert (stage.indexes("a"), stage.indexes("b")) == ([0, 2], [1, 3])


def test_uniform_moves_as_little_as_possible(stage: Stage) -> None:
    stage.make_topic("t", 12)
    for name in "abc":
        stage.pulse("g", name)
    stage.settle("g", "a b c")
    before = {name: set(stage.indexes(name)) for name in "abc"}
    stage.pulse("g", "d")
    stage.settle("g", "a b c d")
    assert all(len(before[name] - set(stage.indexes(name))) == 1 for name in "abc")
    assert len(stage.indexes("d")) == 3


class TestStatic:
    def test_a_restart_takes_the_partitions_back(self, stage: Stage) -> None:
        for name in "ab":
            stage.pulse("g", name, instance_id=f"i-{name}")
        stage.settle("g", "a b")
        epoch, mine = stage.shard.consumer("g").epoch, stage.client("b").owned
        assert stage.pulse("g", "b", member_epoch=-2).member_epoch == -2
        stage.pulse("g", "a")
        assert len(stage.client("a").owned) == 2, "no member takes what a static member left for a while"
        stage.clients["b2"] = stage.clients["b"].__class__("b2", instance_id="i-b")
        answer = stage.pulse("g", "b2")
        assert answer.assigned == mine
        assert stage.shard.consumer("g").epoch == epoch
        with pytest.raises(FencedInstanceId):
            stage.pulse("g", "b", member_epoch=epoch)
        stage.crash()
        stage.pulse("g", "b2")
        assert stage.shard.groups["g"].state == "Stable"

    def test_an_instance_that_has_not_left_is_not_replaced(self, stage: Stage) -> None:
        stage.pulse("g", "a", instance_id="i")
        with pytest.raises(UnreleasedInstanceId):
            stage.pulse("g", "b", instance_id="i")

    def test_a_static_member_that_stays_away_is_removed_after_its_session(self, stage: Stage) -> None:
        for name in "ab":
            stage.pulse("g", name, instance_id=f"i-{name}")
        stage.settle("g", "a b")
        stage.pulse("g", "b", member_epoch=-2)
        stage.wait(44_000)
        stage.pulse("g", "a")
        stage.wait(1_000)
        stage.settle("g", "a")
        assert stage.indexes("a") == [0, 1, 2, 3]

    def test_a_stranger_with_an_instance_id_is_unknown(self, stage: Stage) -> None:
        stage.pulse("g", "a")
        with pytest.raises(UnknownMemberId):
            stage.pulse("g", "a", instance_id="i")


class TestOffsets:
    def test_an_empty_group_accepts_only_requests_without_an_epoch(self, stage: Stage) -> None:
        stage.pulse("g", "a")
        stage.pulse("g", "a", member_epoch=-1)
        stage.shard.check_fetch("g", "b", -1)
        with pytest.raises(UnknownMemberId):
            stage.shard.check_fetch("g", "b", 0)

    def test_only_the_current_epoch_commits(self, stage: Stage) -> None:
        stage.pulse("g", "a")
        stage.commit("g", "a", 5)
        stage.client("a").epoch = 7
        with pytest.raises(StaleMemberEpoch):
            stage.commit("g", "a", 6)
        with pytest.raises(UnknownMemberId):
            stage.commit("g", None, 6)
        with pytest.raises(StaleMemberEpoch):
            stage.shard.check_fetch("g", "a-member", 7)
        with pytest.raises(UnknownMemberId):
            stage.shard.check_fetch("g", "b", 1)
        stage.shard.check_fetch("g", None, -1)
        assert stage.committed("g") == 5


class TestKinds:
    def test_an_empty_classic_group_becomes_a_consumer_group_and_back(self, stage: Stage) -> None:
        stage.enter("g", "a")
        stage.sync("g", "a", {})
        stage.commit("g", "a", 5)
        stage.leave("g", stage.leaver("a"))
        stage.pulse("g", "b")
        assert stage.committed("g") == 5
        stage.crash()
        assert stage.shard.groups["g"].kind == "consumer"
        stage.pulse("g", "b", member_epoch=-1)
        stage.clients.pop("a")
        stage.enter("g", "a")
        assert stage.client("a").generation == 1
        stage.sync("g", "a", {})
        stage.crash()
        assert stage.shard.groups["g"].kind == "classic"
        assert stage.committed("g") == 5

    def test_members_that_are_not_consumers_stay_among_themselves(self, stage: Stage) -> None:
        stage.enter("g", "a", protocol_type="connect")
        with pytest.raises(GroupIdNotFound):
            stage.pulse("g", "b")
        stage.pulse("h", "b")
        with pytest.raises(InconsistentGroupProtocol):
            stage.join("h", "c", protocol_type="connect")


def test_a_crash_loses_nothing(stage: Stage) -> None:
    for name in "ab":
        stage.pulse("g", name)
    stage.pulse("g", "a")
    before = stage.shard.consumer("g")
    stage.crash()
    after = stage.shard.consumer("g")
    for name in ("epoch", "target_epoch", "topics_hash", "members", "current", "targets", "owners", "static"):
        assert getattr(after, name) == getattr(before, name), name
    assert after.revocations
    stage.settle("g", "a b")
    assert sorted(stage.indexes("a") + stage.indexes("b")) == [0, 1, 2, 3]


def test_a_refused_journal_changes_nothing(stage: Stage) -> None:
    stage.pulse("g", "a")
    stage.refuses = True
    with pytest.raises(KafkaStorageError):
        stage.pulse("g", "b")
    assert list(stage.shard.consumer("g").members) == ["a-member"]
    with pytest.raises(KafkaStorageError):
        stage.wait(45_000)
    stage.refuses = False
    stage.wait(0)
    assert stage.shard.groups["g"].is_empty


def test_the_steps_of_a_member() -> None:
    stage = Stage()
    stage.make_topic("t", 4)
    topic = stage.topics["t"].topic_id
    p = [(topic, index) for index in range(4)]
    begin = CurrentValue(3, 2, MemberState.STABLE, frozenset(p[:2]), frozenset())
    # Nothing to do at the target's epoch.
    assert reconcile(begin, frozenset(p), 3, None, frozenset()) == begin
    # Something must go: the epoch stays.
    going = reconcile(begin, frozenset(p[1:3]), 4, None, frozenset())
    assert going == CurrentValue(3, 2, MemberState.REVOKING, frozenset(p[1:2]), frozenset(p[:1]))
    assert reconcile(going, frozenset(p[1:3]), 4, frozenset(p[:2]), frozenset()) == going
    # It is gone: the epoch moves, what others hold is waited for.
    waiting = reconcile(going, frozenset(p[1:3]), 4, frozenset(p[1:2]), frozenset(p[2:3]))
    assert waiting == CurrentValue(4, 3, MemberState.WAITING, frozenset(p[1:2]), frozenset())
    assert reconcile(waiting, frozenset(p[1:3]), 4, None, frozenset(p[2:3])) == waiting
    done = reconcile(waiting, frozenset(p[1:3]), 4, None, frozenset())
    assert done == CurrentValue(4, 3, MemberState.STABLE, frozenset(p[1:3]), frozenset())
    # A member that does not own what it should give up has nothing to give up.
    assert reconcile(begin, frozenset(p[2:]), 4, frozenset(), frozenset()).state == MemberState.STABLE


def test_an_overview_names_the_topics_of_a_member_and_shows_the_id_of_a_deleted_one(stage: Stage) -> None:
    stage.pulse("g", "a")
    topic_id = stage.topics["t"].topic_id
    [named] = members_of(stage.shard, {topic_id: "t"}.get)
    assert (named.assignment, named.generation) == ({"t": [0, 1, 2, 3]}, 1)
    [unnamed] = members_of(stage.shard, lambda _: None)
    assert unnamed.assignment == {str(topic_id): [0, 1, 2, 3]}


def test_a_member_that_leaves_takes_its_view_and_its_deadline_along(stage: Stage) -> None:
    for name in "ab":
        stage.pulse("g", name, view=TopicView(name, lambda _: True))
    group = stage.shard.consumer("g")
    assert len(group.views) == len(group.deadlines) == 2
    stage.pulse("g", "a", member_epoch=-1)
    left = {stage.client("b").member_id}
    assert set(group.views) == set(group.deadlines) == set(group.members) == left


def test_a_group_without_members_is_dropped_unless_it_is_journaled(stage: Stage) -> None:
    stage.shard.consumer("new")
    stage.shard.drop_unused("new")
    assert "new" not in stage.shard.groups
    stage.pulse("g", "a")
    stage.shard.drop_unused("g")
    stage.pulse("g", "a", member_epoch=-1)
    stage.shard.drop_unused("g")
    assert "g" in stage.shard.groups
