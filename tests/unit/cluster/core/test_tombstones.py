"""Tombstones of deleted topics."""

from uuid import UUID

import pytest

from tidemill.cluster.core.tombstones import Tombstone, decode_tombstone, encode_tombstone, record_key, tombstone_key
from tidemill.model.errors import KafkaStorageError

TOMBSTONE = Tombstone("orders", UUID(int=1), 3, 2, (1, 2))


def test_an_encoded_tombstone_is_decoded_unchanged() -> None:
    assert decode_tombstone(encode_tombstone(TOMBSTONE)) == TOMBSTONE


def test_a_tombstone_blocks_a_name_and_its_record_keeps_the_id() -> None:
    assert tombstone_key("orders").endswith("/orders")
    assert record_key(UUID(int=1)).endswith(f"/{UUID(int=1)}")
    assert tombstone_key("orders").split("/")[0] != record_key(UUID(int=1)).split("/")[0]


@pytest.mark.parametrize("document", [b"", b"[]", b"{}", b'{"left": 1}'])
def test_a_damaged_tombstone_is_an_error_of_the_storage(document: bytes) -> None:
    with pytest.raises(KafkaStorageError, match="a deletion in coordination cannot be read"):
        decode_tombstone(document)
