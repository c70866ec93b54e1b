"""The settings of a share group without any: those of Kafka's brokers. The delays of redeliveries."""

from tidemill.shares.core.delivery_policy import DeliveryPolicy, RetryBackoff


def test_the_defaults_are_those_of_kafka() -> None:
    """`share.record.lock.duration.ms`, `share.delivery.count.limit` and `share.partition.max.record.locks`."""
    policy = DeliveryPolicy()
    assert (policy.lock_ms, policy.deliveries_max, policy.locks_max) == (30_000, 5, 2_000)
    assert policy.backoff.delay_ms(3) == 0, "Kafka delivers again at once"


def test_the_last_delay_is_repeated() -> None:
    backoff = RetryBackoff((100, 2_000, 30_000))
    assert [backoff.delay_ms(deliveries) for deliveries in range(6)] == [0, 100, 2_000, 30_000, 30_000, 30_000]
