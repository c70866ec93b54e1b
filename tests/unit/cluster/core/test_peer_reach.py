"""Missing peers: when one counts as missing, when it is back, and which broker is degraded by it."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from tidemill.cluster.core.peer_reach import (
    FAILURES,
    HOLD_MS,
    RETURNS,
    HeldVerdict,
    PeerReach,
    PeersVerdict,
    judge_peers,
)

TTL_MS = 10_000
STEP_MS = 2_000


def after(outcomes: str) -> bool:
    """Whether a peer is missing after these answers (+) and failures (-), one every two seconds."""
    reach = PeerReach(TTL_MS)
    reach.keep([2], 0)
    for number, outcome in enumerate(outcomes, 1):
        (reach.answered if outcome == "+" else reach.failed)(2, number * STEP_MS)
    return 2 in reach.missing()


def test_a_peer_is_missing_after_more_than_a_session() -> None:
    assert not after("+" + "-" * 7)
    assert after("+" + "-" * 8), "16 s without an answer"


def test_a_peer_is_back_after_some_answers() -> None:
    gone = "-" * 10
    assert after(gone + "+" * (RETURNS - 1))
    assert not after(gone + "+" * RETURNS)
    assert after(gone + "++-" * 5), "now and then is not back"


def test_a_lossy_network_is_no_missing_peer() -> None:
    assert not after("+-" * 100)
    assert not after("+--" * 100)


def test_a_failure_after_a_pause_proves_nothing() -> None:
    reach = PeerReach(TTL_MS)
    reach.keep([2], 0)
    reach.answered(2, 1)
    for number in range(FAILURES):
        assert not reach.missing()
        reach.failed(2, 600_000 + number)
    assert reach.missing() == {2}


def test_a_broker_that_left_or_is_unknown_is_not_missing() -> None:
    reach = PeerReach(TTL_MS)
    reach.keep([2], 0)
    for number in range(10):
        reach.failed(2, number * STEP_MS)
        reach.failed(9, number * STEP_MS)
    assert reach.missing() == {2}
    reach.keep([3], 20_000)
    assert reach.missing() == frozenset()
    reach.keep([2], 21_000)
    assert reach.missing() == frozenset(), "it registered again, and gets time again"


def test_a_lost_session_starts_over() -> None:
    reach = PeerReach(TTL_MS)
    reach.keep([2], 0)
    for number in range(10):
        reach.failed(2, number * STEP_MS)
    reach.start_over(20_000)
    assert reach.missing() == frozenset()


def test_an_isolated_broker_is_the_only_degraded_one() -> None:
    lists = {1: {2}, 2: {1, 3}, 3: {2}}
    assert judge_peers(2, lists) == PeersVerdict((1, 3), (1, 3))
    assert not judge_peers(1, lists)
    assert not judge_peers(3, lists)


def test_a_broker_that_others_cannot_reach_is_degraded_although_it_reaches_them() -> None:
    lists: dict[int, set[int]] = {1: {2}, 2: set(), 3: {2}}
    assert judge_peers(2, lists).unreached_by == (1, 3)
    assert not judge_peers(1, lists)


def test_a_cut_between_two_brokers_degrades_both() -> None:
    lists: dict[int, set[int]] = {1: {2}, 2: {1}, 3: set()}
    assert [bool(judge_peers(node, lists)) for node in (1, 2, 3)] == [True, True, False]
    pair = {1: {2}, 2: {1}}
    assert [bool(judge_peers(node, pair)) for node in (1, 2)] == [True, True]


@given(st.integers(3, 7), st.data())
def test_of_one_cut_off_broker_only_it_is_degraded(count: int, data: st.DataObject) -> None:
    lost = data.draw(st.integers(1, count))
    lists = {node: ({lost} if node != lost else set(range(1, count + 1)) - {lost}) for node in range(1, count + 1)}
    assert [node for node in lists if judge_peers(node, lists)] == [lost]


@given(st.integers(2, 6), st.data())
def test_every_cut_degrades_a_broker_and_none_without_a_cut(count: int, data: st.DataObject) -> None:
    pairs = list(itertools.combinations(range(1, count + 1), 2))
    cuts = data.draw(st.lists(st.sampled_from(pairs), unique=True))
    lists: dict[int, set[int]] = {node: set() for node in range(1, count + 1)}
    for one, other in cuts:
        lists[one].add(other)
        lists[other].add(one)
    degraded = {node for node in lists if judge_peers(node, lists)}
    if len(cuts) < len(pairs):  # when every connection is cut, each broker blames the others
        assert bool(degraded) == bool(cuts)
    assert degraded <= {node for cut in cuts for node in cut}


def test_a_verdict_counts_after_a_while() -> None:
    held, verdict = HeldVerdict(), PeersVerdict((2,))
    assert not held.add(verdict, 0)
    assert not held.add(verdict, HOLD_MS - 1)
    assert held.add(verdict, HOLD_MS) == verdict
    assert not held.add(PeersVerdict(), HOLD_MS + 1)
    assert not held.add(verdict, HOLD_MS + 2)


def test_the_reason_names_the_brokers() -> None:
    assert PeersVerdict((2, 3), (3,)).text() == (
        "brokers are missing: it cannot reach brokers 2, 3, although they are registered; broker 3 cannot reach it; "
        "check the network between them"
    )
    assert PeersVerdict().text() == ""
