"""Classic groups: joining, generations, fencing, static members, time."""

from typing import cast

import pytest
from tests.support.group_stage import Stage

from tidemill.groups.core.classic_group import NEVER_MS, ClassicState
from tidemill.groups.core.descriptions import describe
from tidemill.groups.core.limits import GroupLimits
from tidemill.groups.core.member import choose_protocol
from tidemill.groups.core.messages import JoinAnswer, Leaver, SyncAnswer
from tidemill.model.errors import (
    FencedInstanceId,
    GroupMaxSizeReached,
    IllegalGeneration,
    InconsistentGroupProtocol,
    KafkaError,
    KafkaStorageError,
    MemberIdRequired,
    RebalanceInProgress,
    UnknownMemberId,
)


def stable(*names: str, static: bool = False, **options: object) -> Stage:
    """A group g in which everyone has an assignment named after itself."""
    stage = Stage()
    for name in names:
        stage.enter("g", name, **({"instance": f"i-{name}"} if static else {}), **options)
    for name in names:
        if (
            stage.client(name).generation < stage.group("g").generation
            or stage.group("g").state is ClassicState.PREPARING
        ):
            stage.join("g", name, **options)  # type: ignore[arg-type]  # join's own options
    leader = next(name for name in names if stage.client(name).leads)
    for name in names:
        if name != leader:
            stage.sync("g", name)
    stage.sync("g", leader, {name: name.encode() for name in names})
    assert stage.group("g").state is ClassicState.STABLE
    stage.reported()
    return stage


def joins(stage: Stage) -> dict[str, JoinAnswer]:
    return {name: answer for name, answer in stage.reported() if isinstance(answer, JoinAnswer)}


def errors(stage: Stage) -> dict[str, type[KafkaError]]:
    return {name: type(answer) for name, answer in stage.reported() if isinstance(answer, KafkaError)}


def test_a_new_client_gets_its_id_first() -> None:
    stage = Stage()
    stage.join("g", "a")
    answer = joins(stage)["a"]
    assert isinstance(answer.error, MemberIdRequired)
    assert answer.member_id == "a-1"
    stage.join("g", "a")
    answer = joins(stage)["a"]
    assert (answer.generation, answer.leader, answer.protocol) == (1, "a-1", "range")
    assert [member.member_id for member in answer.members] == ["a-1"]


def test_an_old_client_joins_at_once() -> None:
    stage = Stage()
    stage.join("g", "a", version=3)
    assert joins(stage)["a"].generation == 1


def test_an_id_that_was_given_out_and_never_used_is_forgotten_with_the_group() -> None:
    stage = Stage()
    stage.join("g", "a")
    stage.wait(10_000)
    assert not stage.shard.exists("g")
    assert not stage.journal
    with pytest.raises(UnknownMemberId):
        stage.group("g")


def test_the_first_generation_waits_for_more_members() -> None:
    stage = Stage(GroupLimits(initial_rebalance_delay_ms=3_000))
    stage.enter("g", "a")
    stage.wait(2_000)
    stage.enter("g", "b")
    stage.reported()
    stage.wait(999)
    assert not stage.reported()
    stage.wait(1)
    assert not stage.reported(), "b came within the delay, so it starts over"
    stage.wait(3_000)
    answers = joins(stage)
    assert {name: answer.generation for name, answer in answers.items()} == {"a": 1, "b": 1}
    assert answers["b"].members == ()
    assert len(answers["a"].members) == 2


def test_the_initial_delay_ends_with_the_rebalance_timeout() -> None:
    stage = Stage(GroupLimits(initial_rebalance_delay_ms=3_000))
    stage.enter("g", "a", rebalance_ms=7_000)
    for name in "bcd":
        stage.wait(2_500)
        if stage.client("a").generation < 1:
            stage.enter("g", name, rebalance_ms=7_000)
    assert stage.now_ms == 1_000 + 7_500
    assert stage.client("a").generation == 1


def test_the_initial_delay_is_extended_to_the_end_of_the_rebalance_timeout() -> None:
    stage = Stage(GroupLimits(initial_rebalance_delay_ms=3_000))
    stage.enter("g", "a", rebalance_ms=3_001)
    stage.wait(2_000)
    stage.enter("g", "b", rebalance_ms=3_001)
    stage.reported()
    stage.wait(1_000)
    assert not stage.reported()
    stage.wait(1)
    assert sorted(joins(stage)) == ["a", "b"]


def test_assignments_go_to_all_members_that_wait_and_to_later_requests() -> None:
    stage = stable("a", "b", "c")
    assert {name: stage.client(name).assignment for name in "abc"} == {"a": b"a", "b": b"b", "c": b"c"}
    stage.sync("g", "b")
    (name, answer), *_ = stage.reported()
    assert (name, cast("SyncAnswer", answer).assignment) == ("b", b"b")


def test_a_member_without_an_assignment_gets_an_empty_one() -> None:
    stage = Stage()
    stage.enter("g", "a")
    stage.sync("g", "a", {})
    assert cast("SyncAnswer", stage.reported()[-1][1]).assignment == b""


def test_a_join_begins_a_new_generation_that_heartbeats_report() -> None:
    stage = stable("a", "b")
    stage.enter("g", "c")
    for name in "ab":
        with pytest.raises(RebalanceInProgress):
            stage.beat("g", name)
    stage.join("g", "b")
    stage.reported()
    stage.join("g", "a")
    answers = joins(stage)
    assert sorted(answers) == ["a", "b", "c"]
    assert {answer.generation for answer in answers.values()} == {stage.group("g").generation}
    assert answers["c"].leader == stage.client("a").member_id, "the leader keeps its role"


def test_a_member_that_misses_the_rebalance_timeout_is_removed() -> None:
    stage = stable("a", "b", rebalance_ms=5_000)
    stage.enter("g", "c", rebalance_ms=5_000)
    stage.join("g", "a", rebalance_ms=5_000)
    stage.reported()
    stage.wait(4_999)
    assert not stage.reported()
    stage.wait(1)
    assert sorted(joins(stage)) == ["a", "c"]
    with pytest.raises(UnknownMemberId):
        stage.beat("g", "b")


def test_a_silent_member_is_lost_after_its_session() -> None:
    stage = stable("a", "b")
    stage.wait(9_000)
    stage.beat("g", "a")
    stage.wait(1_000)
    with pytest.raises(RebalanceInProgress):
        stage.beat("g", "a")
    with pytest.raises(UnknownMemberId):
        stage.beat("g", "b")


def test_a_member_that_waits_for_the_others_is_not_silent() -> None:
    stage = stable("a", "b", rebalance_ms=60_000)
    stage.enter("g", "c")
    stage.join("g", "a")
    for _ in range(5):
        stage.wait(9_000)
        with pytest.raises(RebalanceInProgress):
            stage.beat("g", "b")
    assert len(stage.group("g").members) == 3


def test_a_member_that_does_not_sync_is_removed_after_the_rebalance_timeout() -> None:
    stage = Stage()
    for name in "ab":
        stage.enter("g", name, session_ms=60_000, rebalance_ms=20_000)
    stage.join("g", "a", session_ms=60_000, rebalance_ms=20_000)
    leader, other = ("a", "b") if stage.client("a").leads else ("b", "a")
    stage.sync("g", other)
    stage.reported()
    stage.wait(20_000)
    assert errors(stage) == {other: RebalanceInProgress}
    with pytest.raises(UnknownMemberId):
        stage.beat("g", leader)


def test_a_follower_that_changes_nothing_gets_its_place_back_and_a_leader_rebalances() -> None:
    stage = stable("a", "b")
    generation = stage.group("g").generation
    leader, other = ("a", "b") if stage.client("a").leads else ("b", "a")
    stage.join("g", other)
    assert joins(stage)[other].generation == generation
    assert stage.group("g").state is ClassicState.STABLE
    stage.join("g", leader)
    assert stage.group("g").state is ClassicState.PREPARING


def test_a_follower_with_a_new_subscription_rebalances() -> None:
    stage = stable("a", "b")
    other = "b" if stage.client("a").leads else "a"
    stage.join("g", other, topics="u")
    assert stage.group("g").state is ClassicState.PREPARING


def test_a_repeated_join_of_a_complete_generation_gets_the_same_answer() -> None:
    stage = Stage()
    stage.enter("g", "a")
    first = joins(stage)["a"]
    stage.join("g", "a")
    assert joins(stage)["a"] == first


def test_a_second_join_of_a_waiting_member_ends_the_first() -> None:
    stage = stable("a", "b")
    stage.enter("g", "c")
    stage.reported()
    stage.join("g", "c")
    assert errors(stage) == {"c": RebalanceInProgress}


def test_cooperative_members_that_join_twice_in_a_row_stay() -> None:
    stage = stable("a", "b", protocols="cooperative-sticky")
    for round_number in range(3):
        for name in "ab":
            stage.join("g", name, protocols="cooperative-sticky", topics=f"t,u{round_number}")
        answers = joins(stage)
        assert sorted(answers) == ["a", "b"]
        leader = next(name for name in "ab" if stage.client(name).leads)
        stage.sync("g", leader, {"a": b"a", "b": b"b"})
        stage.sync("g", "b" if leader == "a" else "a")
    assert stage.group("g").state is ClassicState.STABLE


@pytest.mark.parametrize("verb", ["beat", "sync", "commit"])
def test_b17_an_old_generation_is_refused(verb: str) -> None:
    stage = stable("a")
    stage.client("a").generation -= 1
    with pytest.raises(IllegalGeneration):
        {
            "beat": lambda: stage.beat("g", "a"),
            "sync": lambda: stage.sync("g", "a"),
            "commit": lambda: stage.commit("g", "a", 5),
        }[verb]()
    assert stage.committed("g") == -1


def test_a_member_that_syncs_after_the_leader_stays() -> None:
    stage = Stage()
    for name in "ab":
        stage.enter("g", name)
    stage.join("g", "a")
    stage.sync("g", "a", {"a": b"1", "b": b"2"})
    assert stage.group("g").state is ClassicState.STABLE
    stage.sync("g", "b")
    for _ in range(14):  # beyond the rebalance timeout, until which a member has to sync
        stage.wait(5_000)
        stage.beat("g", "a")
        stage.beat("g", "b")
    assert stage.group("g").state is ClassicState.STABLE


def test_sync_names_the_protocol_from_version_5_on() -> None:
    stage = stable("a")
    stage.sync("g", "a", protocol_type="consumer", protocol="range")
    with pytest.raises(InconsistentGroupProtocol):
        stage.sync("g", "a", protocol="roundrobin")
    with pytest.raises(InconsistentGroupProtocol):
        stage.sync("g", "a", protocol_type="connect")


def test_members_must_have_something_in_common() -> None:
    stage = stable("a")
    for options in ({"protocols": "sticky"}, {"protocol_type": "connect"}, {"protocols": ""}):
        with pytest.raises(InconsistentGroupProtocol):
            stage.join("g", "b", **options)  # type: ignore[arg-type]  # join's own options
    with pytest.raises(InconsistentGroupProtocol):
        stage.join("other", "b", protocols="")
    assert not stage.shard.exists("other")


def test_the_protocol_that_most_prefer_and_all_know() -> None:
    assert choose_protocol([(("a", b""), ("b", b"")), (("b", b""), ("a", b"")), (("b", b""), ("a", b""))]) == "b"
    assert choose_protocol([(("a", b""), ("b", b"")), (("b", b""),)]) == "b"
    assert choose_protocol([(("a", b""),), (("b", b""),)]) is None
    assert choose_protocol([]) is None


def test_a_group_has_a_largest_size() -> None:
    stage = Stage(GroupLimits(initial_rebalance_delay_ms=0, members_max=2))
    stage.enter("g", "a")
    stage.enter("g", "b")
    with pytest.raises(GroupMaxSizeReached):
        stage.join("g", "c")
    stage.join("g", "a")
    assert len(stage.group("g").members) == 2


def test_the_last_one_out_leaves_an_empty_group_that_is_remembered() -> None:
    stage = stable("a", "b")
    generation = stage.group("g").generation
    left = stage.leave("g", stage.leaver("a"), Leaver("unknown"), stage.leaver("b"))
    assert [type(each.error) for each in left] == [type(None), UnknownMemberId, type(None)]
    stage.crash()
    assert stage.group("g").state is ClassicState.EMPTY
    assert stage.group("g").generation > generation
    stage.clients.clear()
    stage.enter("g", "c")
    assert stage.client("c").generation > generation + 1


def test_a_leave_lets_the_others_complete() -> None:
    stage = stable("a", "b", "c")
    stage.join("g", "a", topics="u")
    stage.join("g", "b", topics="u")
    stage.reported()
    stage.leave("g", stage.leaver("c"))
    assert sorted(joins(stage)) == ["a", "b"]


def test_an_id_that_is_not_used_yet_can_be_given_back() -> None:
    stage = Stage()
    stage.join("g", "a")
    assert stage.leave("g", stage.leaver("a"))[0].error is None
    assert not stage.group("g").pending


def test_after_a_crash_members_go_on_where_they_were() -> None:
    stage = stable("a", "b")
    stage.commit("g", "a", 7)
    stage.crash()
    for name in "ab":
        stage.beat("g", name)
        stage.sync("g", name)
    assert stage.committed("g") == 7
    assert {name: cast("SyncAnswer", answer).assignment for name, answer in stage.reported()} == {"a": b"a", "b": b"b"}
    stage.wait(10_000)
    assert stage.group("g").state is ClassicState.EMPTY


def test_a_crash_brings_back_the_last_subscription_and_not_the_first() -> None:
    stage = stable("a", topics="t")
    stage.join("g", "a", topics="u")
    stage.sync("g", "a", {})
    stage.crash()
    assert [stage.group("g").reads()(topic) for topic in ("t", "u")] == [False, True]
    assert stage.group("g").leader == stage.client("a").member_id


def test_a_refused_journal_changes_nothing() -> None:
    stage = Stage()
    for name in "ab":
        stage.enter("g", name)
    stage.join("g", "a")
    leader, other = ("a", "b") if stage.client("a").leads else ("b", "a")
    stage.sync("g", other)
    stage.reported()
    stage.refuses = True
    with pytest.raises(KafkaStorageError):
        stage.sync("g", leader, {"a": b"x", "b": b"y"})
    assert stage.group("g").state is ClassicState.COMPLETING
    assert not stage.reported(), "the follower still waits"
    with pytest.raises(KafkaStorageError):
        stage.commit("h", None, 5)
    assert stage.committed("h") == -1
    stage.refuses = False
    stage.sync("g", leader, {"a": b"x", "b": b"y"})
    assert {name for name, _ in stage.reported()} == {"a", "b"}


def test_an_empty_group_that_the_journal_refused_is_written_later() -> None:
    stage = stable("a")
    stage.refuses = True
    with pytest.raises(KafkaStorageError):
        stage.leave("g", stage.leaver("a"))
    stage.refuses = False
    stage.wait(1_000)
    assert stage.group("g").state is ClassicState.EMPTY
    stage.crash()
    assert stage.group("g").state is ClassicState.EMPTY


class TestStatic:
    def test_a_restart_takes_the_place_back_without_a_rebalance(self) -> None:
        stage = stable("a", "b", static=True)
        generation = stage.group("g").generation
        leader, other = ("a", "b") if stage.client("a").leads else ("b", "a")
        old_id = stage.client(other).member_id
        stage.client(other).member_id = ""
        stage.join("g", other)
        answer = joins(stage)[other]
        assert answer.generation == generation
        assert answer.member_id not in {"", old_id}
        assert not answer.skip_assignment
        assert stage.group("g").state is ClassicState.STABLE
        stage.sync("g", other)
        assert stage.client(other).assignment == other.encode()
        stage.beat("g", leader)
        stage.client(other).member_id = old_id
        for verb in (stage.beat, stage.sync):
            with pytest.raises(FencedInstanceId):
                verb("g", other)
        with pytest.raises(FencedInstanceId):
            stage.commit("g", other, 1)

    def test_a_leader_is_asked_not_to_assign(self) -> None:
        for version, skips in ((9, True), (8, False)):
            stage = stable("a", "b", static=True)
            leader = "a" if stage.client("a").leads else "b"
            old_id = stage.client(leader).member_id
            stage.client(leader).member_id = ""
            stage.join("g", leader, version=version)
            answer = joins(stage)[leader]
            assert answer.skip_assignment is skips
            assert answer.leader == (answer.member_id if skips else old_id)
            assert len(answer.members) == (2 if skips else 0)
            stage.crash()
            stage.beat("g", leader)
            assert stage.group("g").leader == answer.member_id

    def test_a_refused_take_over_leaves_the_old_self(self) -> None:
        stage = stable("a", "b", static=True)
        old_id = stage.client("b").member_id
        stage.client("b").member_id = ""
        stage.refuses = True
        with pytest.raises(KafkaStorageError):
            stage.join("g", "b")
        stage.client("b").member_id = old_id
        stage.beat("g", "b")

    def test_a_new_protocol_needs_a_rebalance(self) -> None:
        stage = stable("a", static=True, protocols="range,roundrobin")
        stage.client("a").member_id = ""
        stage.join("g", "a", protocols="roundrobin")
        assert joins(stage)["a"].protocol == "roundrobin"
        assert stage.group("g").state is ClassicState.COMPLETING

    def test_a_member_that_is_away_keeps_its_place_until_its_session_ends(self) -> None:
        stage = stable("a", "b", static=True, rebalance_ms=5_000, session_ms=30_000)
        leader, other = ("a", "b") if stage.client("a").leads else ("b", "a")
        stage.join("g", leader, rebalance_ms=5_000, session_ms=30_000)
        stage.wait(5_000)
        assert len(joins(stage)[leader].members) == 2
        stage.sync("g", leader, {leader: b"1", other: b"2"})
        stage.wait(24_000)
        stage.beat("g", leader)
        stage.wait(999)
        assert len(stage.group("g").members) == 2
        stage.wait(1)
        assert len(stage.group("g").members) == 1

    def test_a_running_instance_is_fenced_by_its_successor_in_mid_rebalance(self) -> None:
        stage = stable("a", "b", static=True)
        stage.enter("g", "c")
        stage.join("g", "b")
        stage.reported()
        stage.clients["b2"] = stage.clients["b"].__class__("b2", instance_id="i-b")
        stage.join("g", "b2")
        assert errors(stage) == {"b": FencedInstanceId}

    def test_an_operator_removes_an_instance_by_name(self) -> None:
        stage = stable("a", "b", static=True)
        results = stage.leave("g", Leaver("", "i-b"), Leaver("", "i-x"), Leaver("wrong", "i-a"))
        assert [type(each.error) for each in results] == [type(None), UnknownMemberId, FencedInstanceId]
        with pytest.raises(UnknownMemberId):
            stage.beat("g", "b")


class TestCommits:
    def test_anyone_commits_to_a_group_without_members(self) -> None:
        stage = Stage()
        stage.commit("g", None, 5)
        assert stage.committed("g") == 5
        assert stage.shard.group_ids() == ["g"]
        assert stage.shard.listed("g") == ("g", "", "Empty", "classic")

    def test_but_not_to_one_with_members(self) -> None:
        stage = stable("a")
        with pytest.raises(UnknownMemberId):
            stage.commit("g", None, 5)

    def test_members_commit_while_they_prepare_and_not_while_they_wait_for_assignments(self) -> None:
        stage = stable("a", "b")
        stage.enter("g", "c")
        stage.commit("g", "a", 5)
        for name in "ab":
            stage.join("g", name)
        with pytest.raises(RebalanceInProgress):
            stage.commit("g", "a", 6)
        assert stage.committed("g") == 5

    def test_an_unknown_generation_is_refused(self) -> None:
        stage = Stage()
        stage.client("a").generation = 3
        with pytest.raises(IllegalGeneration):
            stage.commit("g", "a", 5)


def test_a_generation_that_waits_only_for_an_unused_id_begins_when_the_id_ends() -> None:
    stage = stable("a", rebalance_ms=60_000)
    stage.join("g", "b", rebalance_ms=60_000)  # gets an id and does not come back with it
    stage.join("g", "a", rebalance_ms=60_000)
    stage.reported()
    stage.wait(9_999)
    assert joins(stage) == {}
    stage.wait(1)
    assert joins(stage)["a"].generation == 2


def test_an_instance_keeps_its_new_member_when_the_old_one_is_discarded() -> None:
    stage = stable("a", static=True)
    group = stage.group("g")
    group.static["i-a"] = "its new member"
    group.discard(group.members[stage.client("a").member_id], UnknownMemberId())
    assert group.static == {"i-a": "its new member"}


@pytest.mark.parametrize(
    ("who", "generation", "in_transaction", "error"),
    [
        ("a", 1, False, None),
        ("a", 1, True, None),
        ("a", 0, False, IllegalGeneration),
        ("a", -1, False, IllegalGeneration),
        ("a", -1, True, IllegalGeneration),
        ("unknown", 1, False, UnknownMemberId),
        ("", 1, False, UnknownMemberId),
        ("", 0, True, UnknownMemberId),
        ("", -1, False, UnknownMemberId),
        ("", -1, True, None),  # a producer before KIP-447 names no member
    ],
)
def test_a_group_with_members_takes_commits_of_its_generation(
    who: str, generation: int, in_transaction: bool, error: type[KafkaError] | None
) -> None:
    stage = stable("a")
    member_id = stage.client("a").member_id if who == "a" else who

    def commit() -> None:
        stage.shard.check_commit("g", generation, member_id, None, in_transaction=in_transaction)

    if error is None:
        commit()
    else:
        with pytest.raises(error):
            commit()


def test_a_producer_that_names_an_instance_names_its_member_too() -> None:
    stage = stable("a", static=True)
    with pytest.raises(UnknownMemberId):
        stage.shard.check_commit("g", -1, "", "i-a", in_transaction=True)


def test_offsets_of_a_transaction_are_taken_while_members_wait_for_assignments() -> None:
    stage = Stage()
    stage.enter("g", "a")
    assert stage.group("g").state is ClassicState.COMPLETING
    stage.shard.check_commit("g", 1, stage.client("a").member_id, None, in_transaction=True)
    with pytest.raises(RebalanceInProgress):
        stage.shard.check_commit("g", 1, stage.client("a").member_id, None)


def test_a_generation_waits_as_long_as_its_slowest_member_may_take() -> None:
    stage = Stage()
    for name, rebalance_ms in (("a", 4_000), ("b", 9_000), ("c", 6_000)):
        stage.enter("g", name, rebalance_ms=rebalance_ms, session_ms=60_000)
    stage.wait(8_999)
    assert len(stage.group("g").members) == 3
    stage.wait(1)
    assert stage.group("g").members.keys() == {stage.client(name).member_id for name in "bc"}, "a has not joined again"


def test_assignments_restart_the_sessions_of_those_that_get_them() -> None:
    stage = Stage()
    for name in "ab":
        stage.enter("g", name)
    stage.join("g", "a")
    leader, follower = ("a", "b") if stage.client("a").leads else ("b", "a")
    stage.wait(6_000)
    stage.sync("g", follower)
    stage.sync("g", leader, {"a": b"x", "b": b"y"})
    stage.wait(9_999)
    assert len(stage.group("g").members) == 2
    stage.wait(1)
    assert not stage.group("g").members


def test_a_group_that_is_read_again_knows_the_protocols_of_its_members_once() -> None:
    stage = stable("a", topics="t")
    stage.join("g", "a", topics="u")
    stage.sync("g", "a", {})
    stage.crash()  # the journal has two values, with different subscriptions of one member
    stage.enter("g", "b")
    assert len(stage.group("g").members) == 2
    with pytest.raises(InconsistentGroupProtocol):
        stage.join("g", "c", protocols="sticky")


def test_the_leader_stays_when_another_instance_returns_in_mid_rebalance() -> None:
    stage = stable("a", "b", static=True)
    leader, other = ("a", "b") if stage.client("a").leads else ("b", "a")
    leader_id = stage.client(leader).member_id
    stage.join("g", other, topics="u")
    stage.client(other).member_id = ""
    stage.join("g", other, topics="u")
    assert stage.group("g").leader == leader_id
    stage.join("g", leader)
    answers = joins(stage)
    assert {answer.leader for name, answer in answers.items() if answer.error is None} == {leader_id}
    assert stage.client(leader).leads


def test_an_instance_that_returns_brings_its_details() -> None:
    stage = stable("a", "b", static=True)
    other = "b" if stage.client("a").leads else "a"
    stage.client(other).member_id = ""
    stage.join("g", other, session_ms=30_000, protocols="range,sticky")
    found = stage.group("g").members[stage.client(other).member_id]
    assert (found.session_timeout_ms, [name for name, _ in found.protocols]) == (30_000, ["range", "sticky"])
    stage.wait(29_999)
    assert stage.client(other).member_id in stage.group("g").members


def test_the_initial_delay_of_a_single_member_is_not_extended() -> None:
    stage = Stage(GroupLimits(initial_rebalance_delay_ms=3_000))
    stage.enter("g", "a", rebalance_ms=60_000)
    stage.reported()
    stage.wait(2_999)
    assert not joins(stage)
    stage.wait(1)
    assert joins(stage)["a"].generation == 1


def test_a_leader_that_returns_in_mid_rebalance_still_leads() -> None:
    stage = stable("a", "b", static=True)
    leader, other = ("a", "b") if stage.client("a").leads else ("b", "a")
    stage.join("g", other, topics="u")
    stage.client(leader).member_id = ""
    stage.join("g", leader, topics="u")
    assert list(stage.group("g").members)[-1] == stage.client(leader).member_id, "it is not the first one any more"
    assert stage.client(leader).leads
    assert not stage.client(other).leads


def test_a_first_join_that_waits_too_long_is_given_up() -> None:
    stage = stable("a", rebalance_ms=600_000, session_ms=600_000)
    stage.enter("g", "b", rebalance_ms=600_000, session_ms=600_000)
    stage.wait(299_999)
    assert not errors(stage)
    stage.wait(1)
    assert errors(stage) == {"b": UnknownMemberId}


def test_a_group_without_members_has_nothing_to_wake_for() -> None:
    stage = stable("a")
    stage.leave("g", stage.leaver("a"))
    stage.wait(60_000)
    assert stage.group("g").wake_ms == NEVER_MS


def test_a_described_group_has_its_protocol_and_its_members() -> None:
    stage = stable("a", protocol_type="workers")
    found = describe(stage.shard, "g")
    assert (found.state, found.protocol_type, found.protocol) == ("Stable", "workers", "range")
    assert [(each.client_id, each.assignment) for each in found.members] == [("a", b"a")]
    stage.join("g", "a", protocol_type="workers")  # not stable: protocol and assignments do not belong together
    found = describe(stage.shard, "g")
    assert (found.state, found.protocol_type, found.protocol) == ("CompletingRebalance", "workers", "")
    assert [(each.client_id, each.assignment) for each in found.members] == [("a", b"")]
    stage.commit("offsets only", None, 5)
    assert describe(stage.shard, "offsets only") == ("offsets only", "Empty", "", "", ())


def test_a_generation_that_begins_with_a_join_waits_for_assignments_and_no_longer() -> None:
    stage = stable("a", rebalance_ms=900, session_ms=20_000)
    stage.join("g", "a", rebalance_ms=900, session_ms=20_000)
    assert stage.group("g").state is ClassicState.COMPLETING
    stage.wait(899)
    assert stage.group("g").members
    stage.wait(1)
    assert not stage.group("g").members


def test_an_empty_group_is_one_generation_later() -> None:
    stage = stable("a")
    stage.leave("g", stage.leaver("a"))
    assert (stage.group("g").state, stage.group("g").generation) == (ClassicState.EMPTY, 2)
    stage.crash()
    assert stage.group("g").generation == 2


def test_after_a_crash_a_member_that_waits_for_the_others_is_not_silent() -> None:
    stage = stable("a", "b")
    stage.crash()
    stage.join("g", "a", topics="u")
    for _ in range(5):
        stage.wait(5_000)
        with pytest.raises(RebalanceInProgress):
            stage.beat("g", "b")
    assert stage.client("a").member_id in stage.group("g").members
    assert not errors(stage)
