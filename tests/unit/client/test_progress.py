"""The progress of a consumer: which records are returned, handled, and may be committed."""

from hypothesis import given, settings
from hypothesis import strategies as st

from tidemill.client.progress import ConsumerProgress
from tidemill.model.topics import TopicPartition

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def records(*offsets: int) -> list[tuple[int, int]]:
    return [(offset, offset) for offset in offsets]


def test_a_record_is_handled_when_the_next_one_is_asked_for() -> None:
    progress = ConsumerProgress(commit_records=2, commit_interval_ms=500)
    progress.follow({A: 5})
    progress.arrived(A, records(5, 6, 9), 10)
    assert progress.positions() == {A: 10}
    assert progress.take(0) == 5
    assert progress.due_ms(0) is None
    assert progress.take(100) == 6
    assert (progress.due_ms(100), progress.due_ms(700)) == (600, 700)
    assert progress.take(200) == 9
    assert progress.overdue
    assert progress.due_ms(200) == 200
    assert progress.to_commit() == {A: 7}
    assert progress.due_ms(200) is None
    progress.finish(300)
    assert progress.to_commit() == {A: 10}


def test_a_taken_record_is_held_until_the_next_one() -> None:
    progress = ConsumerProgress()
    progress.follow({A: 0})
    progress.arrived(A, records(0, 1), 2)
    assert progress.held_ms(5) == 0
    progress.take(5)
    assert progress.held_ms(12) == 7
    progress.take(20)
    assert progress.held_ms(20) == 0


def test_partitions_take_turns() -> None:
    progress = ConsumerProgress()
    progress.follow({A: 0, B: 0})
    progress.arrived(A, records(0), 1)
    assert list(progress.positions()) == [B, A]


def test_a_partition_that_is_taken_away_waits_for_the_record_in_hand() -> None:
    progress = ConsumerProgress()
    progress.follow({A: 0, B: 0})
    progress.arrived(A, records(0, 1), 2)
    progress.arrived(B, records(0), 1)
    assert progress.take(0) == 0
    progress.follow({B: 7})
    progress.release()
    assert progress.positions() == {B: 1, A: 1}  # A begins again at what was not handed out, should it stay
    assert progress.take(0) == 0  # of B; record 0 of A is handled, record 1 is given back
    assert progress.to_commit() == {A: 1}
    progress.release()
    assert not progress.leaving
    assert progress.assigned == {B}


def test_a_released_partition_commits_nothing() -> None:
    progress = ConsumerProgress()
    progress.follow({A: 0})
    progress.arrived(A, records(0), 1)
    progress.take(0)
    progress.finish(0)
    offsets = progress.to_commit()
    progress.follow({})
    progress.release()
    progress.give_back(offsets, 0)
    assert progress.to_commit() == {}
    progress.arrived(A, records(1), 2)
    assert progress.take(0) is None


def test_a_failed_commit_is_repeated_unless_a_later_offset_is_known() -> None:
    progress = ConsumerProgress()
    progress.follow({A: 0, B: 0})
    progress.arrived(A, records(0, 1), 2)
    progress.arrived(B, records(0), 1)
    progress.take(0)
    progress.take(0)
    first = progress.to_commit()
    progress.finish(0)
    progress.give_back(first | {B: 1}, 50)
    assert progress.to_commit() == {A: 2, B: 1}


def test_a_membership_that_is_over_leaves_nothing() -> None:
    progress = ConsumerProgress()
    progress.follow({A: 0})
    progress.arrived(A, records(0, 1), 2)
    progress.take(0)
    assert progress.lose()
    assert not progress.lose()
    assert progress.take(0) is None
    assert (progress.to_commit(), progress.assigned) == ({}, set())


@settings(max_examples=200)
@given(st.lists(st.sampled_from(["fetch", "take", "commit", "fail", "lose A", "gain A", "release"]), max_size=60))
def test_the_committed_offset_is_what_was_handled_and_never_more(actions: list[str]) -> None:
    progress = ConsumerProgress(commit_records=3)
    committed = 0
    handed: list[int] = []
    progress.follow({A: 0})
    for action in actions:
        if action == "fetch" and A in progress.positions():
            at = progress.positions()[A]
            progress.arrived(A, records(at, at + 1), at + 2)
        elif action == "take":
            one = progress.take(0)
            if one is not None:
                assert one == (handed[-1] + 1 if handed else committed), "a record was left out or came twice"
                handed.append(one)
        elif action in {"commit", "fail"}:
            offsets = progress.to_commit()
            if action == "commit":
                assert offsets.get(A, committed) >= committed
                committed = offsets.get(A, committed)
                assert committed <= (handed[-1] + 1 if handed else committed)
            else:
                progress.give_back(offsets, 0)
        elif action == "release":
            progress.release()
        else:
            progress.follow({A: committed} if action == "gain A" else {})
        if A not in progress.assigned:
            handed.clear()
