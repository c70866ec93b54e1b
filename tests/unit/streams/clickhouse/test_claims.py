"""Claims on partitions: a later epoch takes over."""

from hypothesis import given
from hypothesis import strategies as st

from tidemill.streams.clickhouse.claims import NUMBER_BITS, SINCE_S, claim_after
from tidemill.streams.clickhouse.schema import DELETED_TOPIC

NOW_S = SINCE_S + 1000


def test_a_later_epoch_takes_over_and_an_earlier_one_does_not() -> None:
    first = claim_after(None, 0, NOW_S)
    assert first == 1000
    assert claim_after(first, 0, NOW_S) == 1001, "the same epoch, another process"
    second = claim_after(first, 1, NOW_S)
    assert second == (1 << NUMBER_BITS) + 1000
    assert claim_after(second, 0, NOW_S + 500) is None
    assert claim_after(DELETED_TOPIC, 2**31 - 1, NOW_S) is None, "no broker leads a topic that was deleted"


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(SINCE_S - 10, SINCE_S + 50))))
def test_claims_only_grow(wishes: list[tuple[int, int]]) -> None:
    known: int | None = None
    epoch = 0
    for wanted, now_s in wishes:
        taken = claim_after(known, wanted, now_s)
        assert (taken is None) == (wanted < epoch)
        if taken is not None:
            assert known is None or taken > known
            known, epoch = taken, max(epoch, wanted)
