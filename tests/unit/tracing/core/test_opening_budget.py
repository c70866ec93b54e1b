"""How much may be opened in a second."""

from tidemill.tracing.core.opening_budget import BATCH_COST_MIN, OpeningBudget


def test_a_topic_has_its_share_of_each_second() -> None:
    budget = OpeningBudget(topic_bytes=10_000, all_bytes=100_000)
    assert budget.may_open("busy", 1)
    budget.spend("busy", 9_999)
    assert budget.may_open("busy", 1)
    budget.spend("busy", 9_999)
    assert not budget.may_open("busy", 1)
    assert budget.may_open("quiet", 1)
    assert budget.may_open("busy", 2)


def test_all_topics_share_one_limit() -> None:
    budget = OpeningBudget(topic_bytes=10_000, all_bytes=20_000)
    assert budget.may_open("a", 5)
    for topic in "abcd":
        budget.spend(topic, 5_000)
    assert not budget.may_open("e", 5)
    assert budget.may_open("e", 4)  # the clock was set back: a new second


def test_small_batches_are_limited_in_number() -> None:
    budget = OpeningBudget(topic_bytes=10 * BATCH_COST_MIN)
    opened = 0
    while budget.may_open("t", 1):
        budget.spend("t", 1)
        opened += 1
    assert opened == 10
