"""Bytes in documents: as text or as base64, cut to a size."""

from tidemill.servers.http.core.message_text import ShownBytes, shown_bytes


def test_text_is_shown_as_text() -> None:
    assert shown_bytes("é".encode(), 2) == ShownBytes("é", None, is_cut=False)
    assert shown_bytes(b"", 0) == ShownBytes("", None, is_cut=False)
    assert shown_bytes(None, 5) == ShownBytes(None, None, is_cut=False)


def test_a_long_text_is_cut_between_characters() -> None:
    assert shown_bytes(b"abcd", 3) == ShownBytes("abc", None, is_cut=True)
    assert shown_bytes("abé".encode(), 3) == ShownBytes("ab", None, is_cut=True)


def test_other_bytes_are_base64() -> None:
    assert shown_bytes(b"\xff\x00", 5) == ShownBytes(None, "/wA=", is_cut=False)
    assert shown_bytes(b"\xff\x00\x01", 2) == ShownBytes(None, "/wA=", is_cut=True)
    assert shown_bytes(b"ab\xc3", 3) == ShownBytes(None, "YWLD", is_cut=False), "nothing was cut inside of a character"
