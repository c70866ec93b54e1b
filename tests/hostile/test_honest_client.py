"""The measurement itself: an idle broker is within the bounds, one that stalls or takes memory is noticed."""

import time
from collections.abc import Iterator

import pytest
from tests.hostile.attacked import AttackedBroker, HonestClient, attacked_broker

STALLS = 3
STALL_S = 0.8


@pytest.fixture(scope="module")
def broker() -> Iterator[AttackedBroker]:
    with attacked_broker() as started:
        yield started


def test_an_idle_broker_is_within_the_bounds(broker: AttackedBroker) -> None:
    with broker.watched() as client:
        pass
    assert {each.api for each in client.latencies} == {"connect", "Metadata", "Produce", "Fetch"}


def test_a_broker_that_stalls_is_noticed(broker: AttackedBroker) -> None:
    with pytest.raises(AssertionError, match="p99"), broker.watched() as client:
        stall(broker, client)


def stall(broker: AttackedBroker, client: HonestClient) -> None:
    for _ in range(STALLS):
        broker.process.suspend()
        count = len(client.latencies)
        time.sleep(STALL_S)
        broker.process.resume()
        client.wait_for(count + 10)


def test_a_broker_that_takes_memory_is_noticed(broker: AttackedBroker) -> None:
    with pytest.raises(AssertionError, match="MiB"), broker.watched(rss_bytes_max=1):
        pass
