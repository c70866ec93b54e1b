"""A login that expires: requests that had arrived before are served, later ones end the connection."""

import time

import pytest
from tests.support.waiting import eventually

from tidemill.client.kafka.client import KafkaClient
from tidemill.client.kafka.connection import BlockingConnection
from tidemill.client.kafka.errors import ConnectionLost
from tidemill.client.kafka.fetch import FetchPosition, fetch_request, fetched
from tidemill.client.kafka.options import parse_options
from tidemill.model.errors import KafkaError
from tidemill.model.topics import TopicPartition
from tidemill.testing import Broker

LOGIN_MS = 1_000
PLACE = TopicPartition("orders", 0)


def test_a_request_that_waited_while_the_login_expired_is_served() -> None:
    settings = {"listeners": "SASL_PLAINTEXT://127.0.0.1:0", "connections.max.reauth.ms": LOGIN_MS}
    with Broker(settings=settings, admin_password="admin-password") as broker:
        options = parse_options(
            {
                "bootstrap.servers": broker.listener("SASL_PLAINTEXT"),
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "SCRAM-SHA-256",
                "sasl.username": "admin",
                "sasl.password": "admin-password",
            }
        )
        with KafkaClient(options) as client:
            eventually(lambda: client.metadata([PLACE.topic], create=True))
        connection = BlockingConnection(options.bootstrap[0], options)
        began = time.monotonic()
        try:
            # The first fetch waits for records until the login has expired. The second one arrives behind it.
            waiting = [connection.ask(fetch_request(PLACE, FetchPosition(0, max_wait_ms=each))) for each in (1_500, 1)]
            answers = [fetched(connection.answer(number), FetchPosition(0)) for number in waiting]
            assert time.monotonic() - began > LOGIN_MS / 1000
            assert not any(isinstance(each, KafkaError) for each in answers)
            with pytest.raises(ConnectionLost):
                connection.call(fetch_request(PLACE, FetchPosition(0, max_wait_ms=1)))
        finally:
            connection.close()
