"""Schemathesis calls every operation of the API with valid and invalid input, and compares the answers with the schema.

Streams of events do not end, so they are left out here.
"""

import re
from collections.abc import Iterator
from typing import Any

import httpx

# Kafka's schemas register with Hypothesis where it is imported. Here they do so in this thread: Python 3.11 fails when
# two threads parse modules for pytest at the same time, and the broker would load the schemas in a thread of its own.
import kio.static.primitive  # noqa: F401
import pytest
import schemathesis
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
)

from tidemill.servers.http.api.openapi import openapi_document
from tidemill.testing import Broker

EXAMPLES = 6
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    negative_data_rejection,
]
TIMEOUT_S = 20


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap_servers})
        for future in admin.create_topics([NewTopic("orders", 2)]).values():
            future.result(10)
        producer = Producer({"bootstrap.servers": running.bootstrap_servers})
        producer.produce("orders", b"value", b"key")
        producer.flush(10)
        yield running


schema = schemathesis.openapi.from_dict(openapi_document()).exclude(path_regex="/events$")


def answers_of(operation: str) -> Any:
    """The test of one operation."""

    @schema.include(name=operation).parametrize()
    @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
    def test(case: Any, broker: Broker) -> None:
        case.call_and_validate(base_url=broker.http, checks=CHECKS, timeout=TIMEOUT_S)

    return test


# One function for each operation: schemathesis gives the operations of one function the same id, and of several tests
# with the same id the processes of `make test` run one.
found: Any = schema.get_all_operations()
LABELS = [each.ok().label for each in found]
OPERATIONS = {re.sub(r"\W+", "_", label).strip("_").lower(): label for label in LABELS}
globals().update({f"test_{name}_answers_as_its_schema_says": answers_of(label) for name, label in OPERATIONS.items()})


def test_every_operation_has_a_test_of_its_own() -> None:
    assert len(OPERATIONS) == len(LABELS) > 60


def test_the_broker_still_answers(broker: Broker) -> None:
    found = httpx.get(f"{broker.http}/api/v1/topics", params={"search": "orders"}).json()
    assert [each["topic"] for each in found["topics"]] == ["orders"]
