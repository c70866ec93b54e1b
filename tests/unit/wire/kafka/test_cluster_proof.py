"""The proof between brokers: fixed bytes, because brokers of two versions have to agree on them."""

import hashlib
import hmac

import pytest

from tidemill.wire.kafka.cluster_proof import (
    NONCE_BYTES,
    Hello,
    proof_of_asked,
    proof_of_asker,
    read_hello,
    same,
    write_hello,
)

HELLO = Hello(258, bytes(range(32)))
NONCE = b"n" * NONCE_BYTES


def test_a_hello_is_a_number_and_a_nonce() -> None:
    written = write_hello(HELLO)
    assert written == b"\x00\x00\x01\x02" + HELLO.nonce
    assert read_hello(written) == HELLO


@pytest.mark.parametrize("length", [0, 4, 35, 37])
def test_a_hello_of_another_length_is_none(length: int) -> None:
    assert read_hello(bytes(length)) is None


def test_a_proof_covers_the_direction_and_both_nonces() -> None:
    covered = write_hello(HELLO) + NONCE
    asked = hmac.new(b"secret", b"asked" + covered, hashlib.sha256).digest()
    asker = hmac.new(b"secret", b"asker" + covered, hashlib.sha256).digest()
    assert (proof_of_asked(b"secret", HELLO, NONCE), proof_of_asker(b"secret", HELLO, NONCE)) == (asked, asker)
    assert same(asked, bytes(asked))
    assert not same(asked, asker)
