"""Moves that restore the balance of a topic."""

from hypothesis import given
from hypothesis import strategies as st

from tidemill.cluster.core.broker_load import LoadLevel
from tidemill.cluster.core.moves import ClientMove, MoveReason, plan_moves
from tidemill.cluster.core.selector import CONSUMERS_GOOD, CONSUMERS_MAX, Candidate

TOPIC = "orders"


def brokers(*counts: int, **bad: LoadLevel | bool) -> list[Candidate]:
    """Brokers 1, 2, ... with so many clients; `b2=LoadLevel.OVERLOADED` or `b2=False` (not healthy)."""
    found = []
    for number, count in enumerate(counts, 1):
        state = bad.get(f"b{number}", True)
        level = state if isinstance(state, LoadLevel) else LoadLevel.NORMAL
        found.append(Candidate(number, {TOPIC: count} if count else {}, healthy=state is not False, level=level))
    return found


def moved(candidates: list[Candidate]) -> list[tuple[int, int, int]]:
    return [(one.source, one.target, one.clients) for one in plan_moves(TOPIC, candidates)]


def test_all_on_one_broker_spread_over_two() -> None:
    assert plan_moves(TOPIC, brokers(8, 0, 0, 0)) == (ClientMove(1, 2, 4, MoveReason.CROWDED),)


def test_two_suffice_for_eight() -> None:
    assert moved(brokers(2, 2, 2, 2)) == [(3, 1, 2), (4, 2, 2)]
    assert moved(brokers(1, 3, 2, 2)) == [(1, 2, 1), (4, 3, 2)]


def test_good_enough_stays() -> None:
    for counts in ((4, 4, 0, 0), (5, 3, 0, 0), (7, 1, 0, 0), (7, 0, 0, 0), (0, 0, 0, 0), (4, 4, 1, 0), (1,), (100,)):
        assert not moved(brokers(*counts)), counts


def test_half_of_the_clients_leave_an_unfit_broker() -> None:
    assert moved(brokers(4, 4, 0, b1=LoadLevel.OVERLOADED)) == [(1, 3, 2)]
    assert moved(brokers(1, 4, 0, b1=False)) == [(1, 3, 1)]
    assert moved(brokers(4, 4, b1=False, b2=False)) == [], "there is no better one"
    slow = [each._replace(slow=each.node_id == 2) for each in brokers(4, 4, 0)]
    assert moved(slow) == [(2, 3, 2)]


def test_a_busy_broker_gets_no_clients_of_an_overloaded_one() -> None:
    assert moved(brokers(4, 0, 0, b1=LoadLevel.OVERLOADED, b2=LoadLevel.BUSY)) == [(1, 3, 2)]
    assert not moved(brokers(4, 0, b1=LoadLevel.OVERLOADED, b2=LoadLevel.BUSY))


STATES = st.sampled_from([True, True, True, False, LoadLevel.OVERLOADED, LoadLevel.BUSY])


@given(st.lists(st.tuples(st.integers(0, 40), STATES), min_size=1, max_size=8))
def test_moves_are_possible_and_converge(drawn: list[tuple[int, LoadLevel | bool]]) -> None:
    """Carried out again and again, the moves end, and then the balance is as the rules say."""
    counts = [count for count, _ in drawn]
    bad = {f"b{number}": state for number, (_, state) in enumerate(drawn, 1)}
    for _ in range(50):
        moves = plan_moves(TOPIC, brokers(*counts, **bad))
        if not moves:
            break
        assert moves == plan_moves(TOPIC, list(reversed(brokers(*counts, **bad)))), "the order does not matter"
        for move in moves:
            assert move.source != move.target
            assert move.clients > 0
            counts[move.source - 1] -= move.clients
            counts[move.target - 1] += move.clients
        assert min(counts) >= 0
    else:
        raise AssertionError(f"the moves do not end: {counts}")
    assert sum(counts) == sum(count for count, _ in drawn)
    good = [one for one in brokers(*counts, **bad) if one.is_good]
    if good and all(state is True for _, state in drawn):
        used = sum(count > 0 for count in counts)
        total = sum(counts)
        assert used <= max(1, -(-total // CONSUMERS_GOOD))
        share = -(-total // min(len(good), max(1, -(-total // CONSUMERS_GOOD))))
        assert max(counts) <= max(CONSUMERS_MAX, share + share // 4)
