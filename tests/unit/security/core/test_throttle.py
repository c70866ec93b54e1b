"""What clients use, and how long they must wait."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.security.core import throttle as module
from tidemill.security.core.quotas import QuotaKind, QuotaTable, parse_entity
from tidemill.security.core.throttle import EXPIRY_S, Throttle

COUNT, WINDOW_S = 11, 1.0
BURST_S = (COUNT - 1) * WINDOW_S


def throttled(kind: QuotaKind, value: float, *entries: tuple[str, str | None]) -> Throttle:
    made = Throttle(COUNT, WINDOW_S)
    made.set_table(QuotaTable({parse_entity(entries or [("user", "ann")]): {kind: value}}))
    return made


def test_without_quotas_nothing_is_kept() -> None:
    made = Throttle(COUNT, WINDOW_S)
    assert not made.is_enabled
    assert made.record(QuotaKind.PRODUCE, "ann", "app", 1e9, 0.0) == 0.0
    assert made.offer(QuotaKind.FETCH, "ann", "app", 1e9, 0.0) == 0.0
    assert made.record_time("ann", "app", 100.0, 0.0) == 0.0
    assert made.delay(QuotaKind.MUTATION, "ann", "app", 0.0) == 0.0
    assert made.burst(QuotaKind.FETCH, "ann", "app") is None
    assert made.sensors() == 0


def test_a_quota_of_addresses_does_not_concern_requests() -> None:
    made = throttled(QuotaKind.CONNECTION, 5.0, ("ip", None))
    assert not made.is_enabled


def test_a_producer_waits_until_its_rate_is_back() -> None:
    made = throttled(QuotaKind.PRODUCE, 100.0)
    assert made.is_enabled
    assert not made.measures_time
    assert made.record(QuotaKind.PRODUCE, "ann", "app", 1000.0, 0.0) == 0.0
    assert made.record(QuotaKind.PRODUCE, "ann", "app", 200.0, 0.0) == pytest.approx(2.0)
    assert made.delay(QuotaKind.PRODUCE, "ann", "other", 0.5) == pytest.approx(1.5)
    assert made.delay(QuotaKind.PRODUCE, "bob", "app", 0.5) == 0.0
    assert made.delay(QuotaKind.PRODUCE, "ann", "app", 2.0) == 0.0
    counted = made.counts[QuotaKind.PRODUCE]
    assert counted.responses == 1
    assert counted.seconds == pytest.approx(2.0)


@given(
    st.lists(st.tuples(st.floats(1, 30_000), st.floats(0, 30)), min_size=1, max_size=100),
    st.floats(10, 1000),
)
def test_a_client_that_waits_stays_within_its_quota_and_one_burst(
    requests: list[tuple[float, float]], quota: float
) -> None:
    made = throttled(QuotaKind.PRODUCE, quota)
    now, sent = 0.0, []
    for amount, pause_s in requests:
        now += pause_s
        sent.append((now, amount))
        now += made.record(QuotaKind.PRODUCE, "ann", "app", amount, now)
    for first, (begin, _) in enumerate(sent):
        total = 0.0
        for end, amount in sent[first:]:
            assert total <= quota * (end - begin + BURST_S) * (1 + 1e-9)  # all but the last request
            total += amount


@given(st.lists(st.tuples(st.floats(1, 5000), st.floats(0, 3)), min_size=1, max_size=100), st.floats(10, 1000))
def test_a_hostile_consumer_is_never_sent_more_than_its_quota(fetches: list[tuple[float, float]], quota: float) -> None:
    made = throttled(QuotaKind.FETCH, quota)
    now, total = 0.0, 0.0
    for amount, pause_s in fetches:
        now += pause_s
        size = min(amount, made.burst(QuotaKind.FETCH, "ann", "app") or 0)
        if not made.delay(QuotaKind.FETCH, "ann", "app", now) and not made.offer(
            QuotaKind.FETCH, "ann", "app", size, now
        ):
            total += size
        assert total <= quota * (now + BURST_S) * (1 + 1e-9)


def test_a_large_request_is_not_forgotten_before_it_is_paid() -> None:
    made = throttled(QuotaKind.PRODUCE, 10.0)
    assert made.record(QuotaKind.PRODUCE, "ann", "app", 10_000.0, 0.0) == pytest.approx(990.0)
    assert made.delay(QuotaKind.PRODUCE, "ann", "app", 500.0) == pytest.approx(490.0)


def test_another_table_ends_the_waits() -> None:
    made = throttled(QuotaKind.PRODUCE, 10.0)
    made.record(QuotaKind.PRODUCE, "ann", "app", 10_000.0, 0.0)
    made.set_table(QuotaTable({parse_entity([("user", "ann")]): {QuotaKind.PRODUCE: 11.0}}))
    assert made.delay(QuotaKind.PRODUCE, "ann", "app", 1.0) == 0.0
    assert made.record(QuotaKind.PRODUCE, "ann", "app", 22.0, 1.0) == pytest.approx(1.0)


def test_a_fetch_that_must_wait_is_not_counted() -> None:
    made = throttled(QuotaKind.FETCH, 100.0)
    assert made.offer(QuotaKind.FETCH, "ann", "app", 900.0, 0.0) == 0.0
    assert made.offer(QuotaKind.FETCH, "ann", "app", 300.0, 0.0) == pytest.approx(2.0)
    assert made.delay(QuotaKind.FETCH, "ann", "app", 1.0) == 0.0
    assert made.offer(QuotaKind.FETCH, "ann", "app", 300.0, 12.0) == 0.0


def test_a_batch_above_the_quota_is_sent_when_nothing_was_sent_before() -> None:
    made = throttled(QuotaKind.FETCH, 10.0)
    assert made.burst(QuotaKind.FETCH, "ann", "app") == 10 * BURST_S
    assert throttled(QuotaKind.FETCH, 0.001).burst(QuotaKind.FETCH, "ann", "app") == 1, "a fetch makes progress"
    assert made.offer(QuotaKind.FETCH, "ann", "app", 1000.0, 0.0) == 0.0
    assert made.delay(QuotaKind.FETCH, "ann", "app", 0.0) == pytest.approx(90.0)


def test_an_empty_fetch_never_waits() -> None:
    made = throttled(QuotaKind.FETCH, 1.0)
    made.offer(QuotaKind.FETCH, "ann", "app", 1000.0, 0.0)
    assert made.offer(QuotaKind.FETCH, "ann", "app", 0, 0.0) == 0.0


def test_time_of_the_broker_is_a_percentage_and_waits_one_window_at_most() -> None:
    made = throttled(QuotaKind.REQUEST, 1.0)
    assert made.measures_time
    assert made.record_time("ann", "app", 0.1, 0.0) == 0.0
    assert made.record_time("ann", "app", 0.005, 0.0) == pytest.approx(0.5)
    assert made.record_time("ann", "app", 5.0, 0.0) == WINDOW_S


def test_time_that_is_counted_later_and_its_limit() -> None:
    made = throttled(QuotaKind.REQUEST, 1.0)
    made.spend_time("ann", "app", 1000.0, 0.0)
    assert made.record_time("ann", "app", 0.0, 0.0) == WINDOW_S
    assert made.record_time("ann", "app", 0.0, BURST_S) == 0.0  # it owes no more than its burst
    made.spend_time("bob", "app", 1000.0, 0.0)
    assert made.sensors() == 1


def test_changes_of_topics_are_tokens() -> None:
    made = throttled(QuotaKind.MUTATION, 2.0)
    made.spend(QuotaKind.MUTATION, "ann", "app", 24.0, 0.0)
    assert made.delay(QuotaKind.MUTATION, "ann", "app", 0.0) == pytest.approx(2.0)
    made.spend(QuotaKind.MUTATION, "ann", "app", -24.0, 0.0)
    assert made.delay(QuotaKind.MUTATION, "ann", "app", 0.0) == 0.0


def test_a_quota_is_shared_by_those_that_it_is_for() -> None:
    made = throttled(QuotaKind.PRODUCE, 100.0, ("client-id", "app"))
    made.record(QuotaKind.PRODUCE, "ann", "app", 1500.0, 0.0)
    assert made.delay(QuotaKind.PRODUCE, "bob", "app", 0.0) == pytest.approx(5.0)
    by_both = throttled(QuotaKind.PRODUCE, 100.0, ("user", None), ("client-id", None))
    by_both.record(QuotaKind.PRODUCE, "ann", "app", 1500.0, 0.0)
    assert by_both.delay(QuotaKind.PRODUCE, "ann", "other", 0.0) == 0.0


def test_idle_clients_are_forgotten() -> None:
    made = throttled(QuotaKind.PRODUCE, 100.0, ("client-id", None))
    for name in ("old", "new", "old"):
        made.record(QuotaKind.PRODUCE, "ann", name, 1.0, 0.0)
    made.record(QuotaKind.PRODUCE, "ann", "new", 1.0, EXPIRY_S)
    made.expire(EXPIRY_S + 1)
    assert made.sensors() == 1
    made.expire(2 * EXPIRY_S + 1)
    assert made.sensors() == 0


def test_the_number_and_the_size_of_what_is_kept_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SENSORS_MAX", 10)
    made = throttled(QuotaKind.PRODUCE, 100.0, ("client-id", None))
    for number in range(50):
        made.record(QuotaKind.PRODUCE, "ann", f"{number:02}" + "x" * 30_000, 1.0, 0.0)
    assert made.sensors() == 10
    assert all(len(str(client)) <= 256 for _, client in made._buckets[QuotaKind.PRODUCE])


def test_the_client_that_was_idle_for_longest_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SENSORS_MAX", 2)
    made = throttled(QuotaKind.PRODUCE, 100.0, ("client-id", None))
    for name in ("a", "b", "a", "c"):
        made.record(QuotaKind.PRODUCE, "ann", name, 2000.0, 0.0)
    assert made.delay(QuotaKind.PRODUCE, "ann", "a", 0.0) > 0
    assert made.delay(QuotaKind.PRODUCE, "ann", "b", 0.0) == 0  # forgotten


def test_windows_of_several_seconds_make_a_larger_burst() -> None:
    made = Throttle(3, 5.0)
    made.set_table(QuotaTable({parse_entity([("user", "ann")]): {QuotaKind.FETCH: 100.0, QuotaKind.REQUEST: 1.0}}))
    assert made.burst(QuotaKind.FETCH, "ann", "app") == 1000
    assert made.record_time("ann", "app", 60.0, 0.0) == 5.0


def test_waits_for_topic_changes_are_counted() -> None:
    made = throttled(QuotaKind.MUTATION, 2.0)
    made.count_wait(QuotaKind.MUTATION, 1.5)
    made.count_wait(QuotaKind.MUTATION, 0.0)
    assert made.counts[QuotaKind.MUTATION] == (1, 1.5)
