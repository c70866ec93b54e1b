"""The keys and documents of timeline consumers in coordination: brokers of two versions have to agree on them."""

import pytest

from tidemill.cluster.core.consumer_registry import (
    RegisteredConsumer,
    consumer_key,
    decode_consumer,
    encode_consumer,
    parse_consumer_key,
)
from tidemill.model.errors import KafkaStorageError


@pytest.mark.parametrize(("consumer", "kept"), [("mailer-1", "mailer-1"), ("a/b %", "a%2Fb%20%25"), ("ü", "%C3%BC")])
def test_a_key_has_the_timeline_and_the_consumer(consumer: str, kept: str) -> None:
    assert consumer_key("emails", consumer) == f"consumers/emails/{kept}"
    assert parse_consumer_key(consumer_key("emails", consumer)) == ("emails", consumer)


def test_a_consumer_survives_coordination() -> None:
    attendee = RegisteredConsumer("mailer-1", "rack-a", 2, 5)
    assert encode_consumer(attendee) == b'{"rack":"rack-a","node_id":2,"since_ms":5}'
    assert decode_consumer("mailer-1", encode_consumer(attendee)) == attendee


@pytest.mark.parametrize(
    "document", [b"", b"[]", b'{"rack":"a","node_id":1}', b'{"rack":"a","node_id":"x","since_ms":1}']
)
def test_a_damaged_document_is_a_storage_error(document: bytes) -> None:
    with pytest.raises(KafkaStorageError):
        decode_consumer("mailer-1", document)
