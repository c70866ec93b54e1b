"""The records of brokers that are or were members."""

from uuid import UUID

import pytest

from tidemill.cluster.core.known_brokers import KnownBroker, decode_known, encode_known, known_from, known_key
from tidemill.cluster.core.registration import Endpoint, Registration
from tidemill.cluster.core.view import KeyChange, View
from tidemill.model.errors import KafkaStorageError

BROKER = KnownBroker(7, UUID(int=1), "north", ("broker", "controller"), Endpoint("host", 9092))


@pytest.mark.parametrize("known", [BROKER, BROKER._replace(rack=None, kafka=None, roles=())])
def test_an_encoded_record_is_decoded_unchanged(known: KnownBroker) -> None:
    assert decode_known(encode_known(known)) == known


def test_the_record_of_a_registration_has_its_directory() -> None:
    registration = Registration(7, UUID(int=2), UUID(int=1), kafka=BROKER.kafka, rack="north", roles=BROKER.roles)
    assert known_from(registration) == BROKER._replace(directory=registration.directory)


@pytest.mark.parametrize("document", [b"", b"[]", b"{}", b'{"node_id": "x"}', b"\xff"])
def test_a_damaged_record_is_an_error_of_the_storage(document: bytes) -> None:
    with pytest.raises(KafkaStorageError, match="a known broker in coordination cannot be read"):
        decode_known(document)


def test_a_view_keeps_a_known_broker_until_its_record_is_deleted() -> None:
    view = View({})
    touched = view.apply([KeyChange(known_key(7), encode_known(BROKER), 3)])
    assert touched.brokers
    assert dict(view.image.known) == {7: BROKER}
    assert view.revision_of(known_key(7)) == 3
    assert view.apply([KeyChange(known_key(7), None, 4)]).brokers
    assert dict(view.image.known) == {}
    assert view.revision_of(known_key(7)) == 0
