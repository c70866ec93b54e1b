"""The header `authorization`: users, tokens, and everything that is neither."""

import base64

import pytest

from tidemill.model.errors import SaslAuthenticationFailed
from tidemill.security.core.authorization_header import (
    VALUE_CHARS_MAX,
    BearerLogin,
    NoLogin,
    parse_authorization,
)
from tidemill.security.core.plain import PlainLogin


def basic(text: str | bytes) -> str:
    return f"Basic {base64.b64encode(text.encode() if isinstance(text, str) else text).decode()}"


@pytest.mark.parametrize(
    ("text", "name", "password"),
    [("ada:tea", "ada", "tea"), ("ada:with:colons", "ada", "with:colons"), ("zoë:plätzchen", "zoë", "plätzchen")],
)
def test_a_user_and_a_password(text: str, name: str, password: str) -> None:
    assert parse_authorization(basic(text)) == PlainLogin(name, password)
    assert parse_authorization(basic(text).replace("Basic", "bAsIc")) == PlainLogin(name, password)


def test_a_token() -> None:
    assert parse_authorization("Bearer aa.bb.cc") == BearerLogin("aa.bb.cc")


@pytest.mark.parametrize("value", [None, ""])
def test_no_login(value: str | None) -> None:
    with pytest.raises(NoLogin, match="requires a login"):
        parse_authorization(value)


@pytest.mark.parametrize(
    "value",
    [
        " ",
        "Basic",
        "Basic ",
        "Basic ???",
        "Basic YQ",  # without padding
        basic("ada"),
        basic(":tea"),
        basic("ada:"),
        basic(b"\xff\xfe:tea"),
        basic("x" * 250 + ":tea"),
        basic("ada:" + "x" * 1025),
        "Bearer",
        "Bearer two words",
        "Bearer {json}",
        "Digest username=ada",
        "Negotiate abc",
        "ada:tea",
        "Bearer " + "x" * VALUE_CHARS_MAX,
    ],
)
def test_anything_else_is_refused_in_one_line_that_does_not_repeat_it(value: str) -> None:
    with pytest.raises(SaslAuthenticationFailed) as caught:
        parse_authorization(value)
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 200
    assert "tea" not in message.replace("instead", "")


def test_secrets_are_not_shown() -> None:
    assert "tea" not in repr(parse_authorization(basic("ada:tea")))
    assert "aa.bb" not in repr(parse_authorization("Bearer aa.bb.cc"))
