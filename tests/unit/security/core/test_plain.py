"""PLAIN: the message of RFC 4616, and what is refused."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.client.kafka import sasl
from tidemill.client.kafka.options import Credentials
from tidemill.model.errors import SaslAuthenticationFailed
from tidemill.security.core.plain import PlainLogin, parse_plain


def test_own_client() -> None:
    message = next(sasl.exchange(Credentials("PLAIN", "müller", "sécret"), ""))
    assert parse_plain(message) == PlainLogin("müller", "sécret")


def test_authorization_id_of_the_same_user() -> None:
    assert parse_plain(b"alice\0alice\0x").name == "alice"


@pytest.mark.parametrize("message", [
    b"", b"\0", b"\0\0", b"\0alice\0", b"\0\0x", b"alice\0x", b"\0alice\0x\0", b"bob\0alice\0x", b"\0\xff\0x",
    b"\0" + b"a" * 250 + b"\0x", b"\0a\0" + b"x" * 1025, b"\0a\0" + b"x" * 5000,
])  # fmt: skip
def test_refused(message: bytes) -> None:
    with pytest.raises(SaslAuthenticationFailed):
        parse_plain(message)


def test_the_password_is_not_shown() -> None:
    assert "secret" not in repr(PlainLogin("alice", "secret"))
    with pytest.raises(SaslAuthenticationFailed) as refused:
        parse_plain(b"bob\0alice\0secret")
    assert "secret" not in str(refused.value)


@given(st.binary(max_size=300))
def test_any_bytes(message: bytes) -> None:
    with contextlib.suppress(SaslAuthenticationFailed):
        assert parse_plain(message).name
