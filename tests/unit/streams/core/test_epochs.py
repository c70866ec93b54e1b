"""The leader epochs of a log: one entry for each epoch that has records."""

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
