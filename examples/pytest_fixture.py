"""A test with a real broker. No broker needs to run: pytest -q examples/pytest_fixture.py."""

import time

from confluent_kafka import Consumer, Producer

from tidemill import Message, Timeline
from tidemill.testing import Broker


def test_produced_records_are_consumed(tidemill_broker: Broker) -> None:
    server = {"bootstrap.servers": tidemill_broker.bootstrap_servers}
    producer = Producer(server)
    producer.produce("orders", key=b"ada", value=b"two teapots")
    assert producer.flush(30) == 0

    consumer = Consumer(server | {"group.id": "mailer", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    [message] = consumer.consume(num_messages=1, timeout=30)
    consumer.close()
    assert (message.key(), message.value()) == (b"ada", b"two teapots")


def test_a_reminder_is_never_early(tidemill_broker: Broker) -> None:
    due = time.time() + 0.5
    with Timeline(tidemill_broker.grpc, "reminders") as reminders:
        reminders.create()
        reminders.schedule([Message(b"tea is ready", due=due)])
        for lease in reminders.work(idle_ms=30_000):
            assert time.time() >= due
            assert lease.body == b"tea is ready"
            lease.complete()
            break
        assert reminders.count() == 0
