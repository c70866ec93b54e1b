"""The checker of the chaos runs finds every kind of error."""

import pytest
from tests.chaos.history import ABORTED, History, Read, Sent, stalls

LOG = [Read(0, 0, b"p:0:0"), Read(0, 1, b"p:0:1"), Read(0, 2, b"p:0:2")]


def clean() -> History:
    history = History(final=list(LOG))
    history.acknowledged = {row.value: Sent(row.partition, row.offset, float(row.offset)) for row in LOG}
    history.polled = {"g": [list(LOG)]}
    history.copies = {"c": list(LOG)}
    return history


def test_a_clean_history_has_no_problems() -> None:
    assert clean().problems() == {}


@pytest.mark.parametrize(
    "kind", ["lost", "duplicated", "reordered", "moved", "never sent", "seen and gone", "went back", "never consumed"]
)
def test_every_kind_of_problem_is_found(kind: str) -> None:
    history = clean()
    if kind == "lost":
        history.acknowledged[b"p:0:9"] = Sent(0, 9, 1.0)
    elif kind == "duplicated":
        history.final.append(Read(0, 3, b"p:0:2"))
    elif kind == "reordered":
        history.final[1:] = [Read(0, 1, b"p:0:2"), Read(0, 2, b"p:0:1")]
    elif kind == "moved":
        history.acknowledged[b"p:0:1"] = Sent(0, 2, 1.0)
    elif kind == "never sent":
        history.final.append(Read(0, 3, b"q:0:0"))
    elif kind == "seen and gone":
        history.polled["g"][0][1] = Read(0, 1, b"p:0:7")
    elif kind == "went back":
        history.polled["g"][0].append(LOG[0])
    else:
        history.polled["g"][0].pop()
    assert kind in history.problems()


@pytest.mark.parametrize(
    ("copy", "kind"),
    [
        (LOG[:-1], "not copied"),
        ([*LOG, Read(0, 9, b"p:0:0")], "copied twice"),
        ([*LOG, Read(0, 9, ABORTED + b"p:0:0")], "aborted and seen"),
        ([Read(0, 0, b"p:0:1"), Read(0, 1, b"p:0:0"), LOG[2]], "copied out of order"),
    ],
)
def test_a_wrong_copy_is_found(copy: list[Read], kind: str) -> None:
    history = clean()
    history.copies["c"] = copy
    assert set(history.problems()) == {kind}


def test_a_send_whose_outcome_is_unknown_may_be_there_or_not() -> None:
    history = clean()
    history.unknown = {b"p:0:3", b"p:0:4"}
    history.final.append(Read(0, 3, b"p:0:3"))
    history.copies["c"].append(Read(0, 3, b"p:0:3"))
    assert history.problems() == {}


def test_the_longest_time_without_an_acknowledgement() -> None:
    sent = [Sent(0, number, at) for number, at in enumerate([1.0, 2.0, 7.0, 8.0])] + [Sent(1, 0, 1.0)]
    assert stalls(sent, 1.5, 7.5) == {0: 5.0, 1: 6.0}
