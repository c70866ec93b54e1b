"""Where a follower's log differs from its leader's, and how it is truncated: by epochs, never to a watermark."""

from random import Random

import pytest

from tidemill.model.errors import CorruptMessage
from tidemill.records.build import NewRecord, build_batch
from tidemill.records.header import BatchHeader, read_header
from tidemill.streams.core.epochs import Epochs
from tidemill.streams.core.follower import (
    BeginAt,
    CutTo,
    Diverged,
    OutOfRange,
    Question,
    check_copied,
    compare,
    next_step,
    question,
    still_true,
)
from tidemill.streams.core.insync import Term

TERM = Term(leader=1, epoch=7, version=0, replicas=(0, 1), isr=(0, 1))


def header(offset: int, epoch: int, count: int = 1) -> BatchHeader:
    return read_header(build_batch([NewRecord(None, b"v", (), 0)] * count, base_offset=offset, leader_epoch=epoch))


def test_b3_logs_that_agree_are_served_and_others_learn_where_they_diverge() -> None:
    leader = Epochs([(0, 0), (2, 10), (5, 30)])
    assert compare(Question(1, 7, 20, 2), leader, 0, 40) is None
    assert compare(Question(1, 7, 35, 2), leader, 0, 40) == Diverged(2, 30)
    assert compare(Question(1, 7, 35, 4), leader, 0, 40) == Diverged(2, 30), "the largest epoch not above the asked"
    assert compare(Question(1, 7, 50, 5), leader, 0, 40) == Diverged(5, 40)


def test_a_log_that_ends_before_the_leaders_log_starts_begins_again() -> None:
    leader = Epochs([(3, 100)])
    assert compare(Question(1, 7, 50, 3), leader, 100, 140) == OutOfRange(100)
    assert compare(Question(1, 7, 50, -1), leader, 0, 40) == OutOfRange(0)
    assert next_step(OutOfRange(100), Epochs([(3, 0)]), 0, 50, 100) == BeginAt(100)


def test_a_cut_goes_to_where_both_agree() -> None:
    own = Epochs([(0, 0), (2, 10), (4, 20)])
    assert next_step(Diverged(2, 30), own, 0, 35, 0) == CutTo(20)
    assert next_step(Diverged(2, 15), own, 0, 35, 0) == CutTo(15)
    assert next_step(Diverged(-1, -1), own, 0, 35, 7) == BeginAt(7)
    assert next_step(Diverged(1, 9), Epochs([(4, 20)]), 20, 35, 3) == BeginAt(3), "nothing in common"


def test_b4_a_late_answer_is_not_true_any_more() -> None:
    asked = question(TERM, Epochs([(2, 0)]), 9)
    assert asked == Question(1, 7, 9, 2)
    assert still_true(asked, TERM, 9)
    assert not still_true(asked, TERM, 10)
    assert not still_true(asked, TERM._replace(epoch=8), 9)
    assert not still_true(asked, TERM._replace(leader=2), 9)


def test_batches_that_no_leader_sends_are_refused() -> None:
    asked = Question(1, 7, 10, 3)
    own = Epochs([(3, 0)])
    check_copied([header(10, 3, 2), header(12, 7), header(20, 7)], asked, own)
    for bad in ([header(9, 3)], [header(10, 2)], [header(10, 8)], [header(10, 3, 2), header(11, 3)]):
        with pytest.raises(CorruptMessage):
            check_copied(bad, asked, own)


@pytest.mark.parametrize("seed", range(60))
def test_any_two_logs_of_one_history_agree_after_a_few_questions(seed: int) -> None:
    """Leaders of growing epochs each extend some older log; a follower ends with a prefix of its leader's."""
    random = Random(seed)
    logs: list[list[int]] = [[], [], []]
    for epoch in range(8):
        lead = random.randrange(3)
        logs[lead] = [*logs[lead], *[epoch] * random.randint(0, 4)]
        for node in range(3):
            if node != lead and random.random() < 0.7:
                logs[node] = _brought_to(logs[node], logs[lead], random.randint(0, 5))


def _brought_to(own: list[int], leader: list[int], copied: int) -> list[int]:
    leader_epochs = _epochs(leader)
    for _ in range(20):
        asked = Question(0, 99, len(own), own[-1] if own else -1)
        found = compare(asked, leader_epochs, 0, len(leader))
        if found is None:
            assert own == leader[: len(own)]
            return own + leader[len(own) : len(own) + copied]
        step = next_step(found, _epochs(own), 0, len(own), 0)
        shorter = own[: step.end_offset] if isinstance(step, CutTo) else []
        assert len(shorter) < len(own), "every step drops something"
        own = shorter
    raise AssertionError("the logs never agreed")


def _epochs(log: list[int]) -> Epochs:
    epochs = Epochs()
    for offset, epoch in enumerate(log):
        epochs.assign(epoch, offset)
    return epochs
