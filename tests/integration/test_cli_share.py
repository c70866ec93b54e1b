"""`tidemill share`."""

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import ShareConsumer
from tests.support.command_line import CommandLine

from tidemill.testing import Broker

FAILED, WRONG_USE = 1, 2
WAIT_S = 60


@pytest.fixture
def member(tidemill: CommandLine, cli_broker: Broker) -> Iterator[ShareConsumer]:
    """A member of the group `mailers`, which has done the 5 records of the topic `mails`."""
    tidemill.fine("produce", "mails", stdin=b"1\n2\n3\n4\n5\n")
    tidemill.fine("share", "configure", "mailers", "--from", "earliest")
    consumer = ShareConsumer({"bootstrap.servers": cli_broker.bootstrap_servers, "group.id": "mailers"})
    consumer.subscribe(["mails"])
    count, end = 0, time.monotonic() + WAIT_S
    while count < 5:
        assert time.monotonic() < end
        count += len(list(consumer.poll(timeout=0.5)))
    consumer.commit_sync(float(WAIT_S))
    yield consumer
    consumer.close()


def test_life_of_a_share_group(tidemill: CommandLine, member: ShareConsumer) -> None:
    assert ["mailers", "stable"] in [line.split() for line in tidemill.fine("share", "list").lines]
    described = tidemill.fine("share", "describe", "mailers", "--json").json()
    assert described["partitions"] == [{"topic": "mails", "partition": 0, "start": 5, "lag": 0, "members": 1}]
    assert [each["partitions"] for each in described["members"]] == [["mails-0"]]
    reset = ("share", "reset-offsets", "mailers", "--yes")
    assert "has members" in tidemill.refused(FAILED, *reset, "--to-earliest")
    member.close()
    tidemill.refused(WRONG_USE, *reset)
    assert tidemill.fine(*reset, "--to-offset", "2", "--json").json() == [
        {"topic": "mails", "partition": 0, "from": 5, "to": 2}
    ]
    said, heads, row = tidemill.fine("share", "describe", "mailers").lines
    assert said == "mailers: empty, 0 members"
    assert heads.split() == ["TOPIC", "PARTITION", "START", "LAG", "MEMBERS"]
    assert row.split() == ["mails", "0", "2", "3", "0"]
    tidemill.fine(*reset, "--to-latest", "--topic", "mails")
    tidemill.fine("share", "delete", "mailers", "--yes")
    assert "mailers" not in tidemill.fine("share", "list").out
    assert "does not exist" in tidemill.refused(FAILED, "share", "describe", "mailers")
    assert "does not exist" in tidemill.refused(FAILED, "share", "delete", "mailers", "--yes")


def test_settings_of_a_share_group(tidemill: CommandLine) -> None:
    configure = ("share", "configure", "workers")
    said = tidemill.fine(*configure, "--retry-backoff", "1s,10s,1m", "--max-deliveries", "7", "--lock", "45s").lines
    assert said == [
        "share.record.lock.duration.ms=45000",
        "share.delivery.count.limit=7",
        "tidemill.share.retry.backoff.ms=1000,10000,60000",
    ]
    tidemill.fine(*configure, "--retry-backoff", "exponential:1000:2:600000", "--committed")
    tidemill.fine(*configure, "--retry-backoff", "none", "--uncommitted")
    tidemill.refused(WRONG_USE, *configure)
    tidemill.refused(WRONG_USE, *configure, "--retry-backoff", "soon")
    assert "share.auto.offset.reset" in tidemill.refused(FAILED, *configure, "--from", "yesterday")
