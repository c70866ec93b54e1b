"""The leader epochs of a log: one entry for each epoch that has records."""

from hypothesis import given
from hypothesis import strategies as st

from tidemill.streams.core.epochs import Epochs


def test_only_the_first_batch_of_an_epoch_is_kept() -> None:
    epochs = Epochs()
    for epoch, start in ((1, 0), (1, 5), (3, 9), (2, 12), (3, 15)):
        epochs.assign(epoch, start)
    assert epochs.save() == [[1, 0], [3, 9]]
    assert [epochs.end_of(epoch, 20) for epoch in (-1, 0, 1, 2, 3, 4)] == [
        (-1, -1), (-1, -1), (1, 9), (1, 9), (3, 20), (3, 20),
    ]  # fmt: skip


def test_the_epoch_of_a_new_start_begins_there() -> None:
    epochs = Epochs([[1, 0], [3, 9], [4, 12]])
    epochs.trim(10)
    assert epochs.save() == [[3, 10], [4, 12]]
    epochs.truncate(12)
    assert epochs.save() == [[3, 10]]


operations = st.lists(st.tuples(st.sampled_from(["assign", "truncate", "trim"]), st.integers(0, 4), st.integers(1, 9)))


@given(operations)
def test_epochs_are_those_of_a_list_of_batches(drawn: list[tuple[str, int, int]]) -> None:
    epochs, batches, start, end = Epochs(), list[tuple[int, int]](), 0, 0
    for verb, least, count in drawn:
        if verb == "assign":
            epoch = max([least, *(known for known, _ in batches)])
            epochs.assign(epoch, end)
            batches += [(epoch, end + each) for each in range(count)]
            end += count
        elif verb == "truncate":
            end = max(start, end - count)
            epochs.truncate(end)
            batches = [each for each in batches if each[1] < end]
        elif count < end - start:  # the log keeps a record
            start += count
            epochs.trim(start)
            batches = [each for each in batches if each[1] >= start]
        assert epochs.last == max((known for known, _ in batches), default=-1)
        assert epochs.save() == [
            [known, min(at for one, at in batches if one == known)] for known in sorted({one for one, _ in batches})
        ]
        for wanted in range(-2, 6):
            below = [known for known, _ in batches if known <= wanted]
            after = [at for known, at in batches if known > wanted]
            expected = (max(below), min(after, default=end)) if below else (-1, -1)
            assert epochs.end_of(wanted, end) == expected
