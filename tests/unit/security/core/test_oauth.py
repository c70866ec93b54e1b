"""OAUTHBEARER: messages and claims; the signature is tested with the keys."""

import base64
import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.model.errors import SaslAuthenticationFailed
from tidemill.security.core.oauth import (
    TokenHead,
    TokenRejected,
    TokenRules,
    authorization_id,
    check_claims,
    parse_bearer,
    parse_head,
)
from tidemill.security.core.principal import user

NOW_MS = 1_000_000_000
NOW_S = NOW_MS // 1000


@pytest.mark.parametrize("message", [
    b"n,,\x01auth=Bearer a.b.c\x01\x01", b"n,a=alice,\x01auth=Bearer a.b.c\x01\x01",
    b"y,,\x01auth=bearer a.b.c\x01\x01", b"n,,\x01auth=Bearer a.b.c\x01traceId=123 x\x01\x01",
    b"n,,\x01host=h\x01auth=Bearer a.b.c\x01\x01",
])  # fmt: skip
def test_bearer_message(message: bytes) -> None:
    assert parse_bearer(message) == "a.b.c"


@pytest.mark.parametrize("message", [
    b"", b"\x01", b"n,,", b"n,,\x01\x01", b"n,,\x01auth=Bearer \x01\x01", b"n,,\x01auth=Basic abc\x01\x01",
    b"n,,\x01auth=Bearer a.b.c\x01", b"p=x,,\x01auth=Bearer a.b.c\x01\x01", b"n,b=x,\x01auth=Bearer a.b.c\x01\x01",
    b"n,,\x01auth=Bearer a.b.c\x01auth=Bearer d\x01\x01", b"n,,\x01auth=Bearer a.b.c\x011=2\x01\x01",
    b"n,,\x01auth=Bearer a b\x01\x01", b"n,,\x01auth=Bearer a\xc3\xa4\x01\x01", b"\xff", b"n,,\x01" + b"x" * 40_000,
])  # fmt: skip
def test_invalid_messages(message: bytes) -> None:
    with pytest.raises(SaslAuthenticationFailed):
        parse_bearer(message)


@given(st.binary(max_size=100) | st.text(alphabet="n,\x01auth=Bearer .").map(str.encode))
def test_any_message(message: bytes) -> None:
    with contextlib.suppress(SaslAuthenticationFailed):
        assert parse_bearer(message)


def test_authorization_id() -> None:
    assert not authorization_id(b"n,,\x01auth=Bearer a\x01\x01")
    assert authorization_id(b"n,a=al=2Cice=3D,\x01auth=Bearer a\x01\x01") == "al,ice="


def token(head: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(head).encode()).decode().rstrip("=") + ".e30.c2ln"


def test_head() -> None:
    assert parse_head(token({"alg": "RS256", "kid": "1"})) == TokenHead("RS256", "1")
    assert parse_head(token({"alg": "EdDSA"})) == TokenHead("EdDSA", None)


@pytest.mark.parametrize("text", [
    *(token({"alg": name}) for name in ("none", "None", "", "HS256", "HS512", "rs256", "RSA-OAEP", None, 1, ["RS256"])),
    token({}), token([]), token("x"), token({"alg": "RS256", "kid": 1}), token({"alg": "RS256", "crit": ["exp"]}),
    "", "a", "a.b", "a.b.c", "a.b.c.d.e", "ä.b.c", "A" * 20_000 + ".b.c", token({"alg": "RS256", "x": "y" * 16_384}),
])  # fmt: skip
def test_refused_heads(text: str) -> None:
    with pytest.raises(TokenRejected):
        parse_head(text)


def claims(**more: Any) -> dict[str, Any]:
    return {"sub": "alice", "exp": NOW_S + 60, "iss": "https://issuer", "aud": "tidemill", **more}


RULES = TokenRules("https://issuer", ("tidemill", "other"), "sub", 30)


def test_claims() -> None:
    assert check_claims(claims(), RULES, NOW_MS) == (user("alice"), NOW_MS + 60_000)
    assert check_claims(claims(aud=["x", "other"], iat=NOW_S + 29, nbf=NOW_S + 29), RULES, NOW_MS)
    assert check_claims(claims(exp=NOW_S - 29), RULES, NOW_MS)
    assert check_claims({"exp": NOW_S + 1.5, "name": "bob"}, TokenRules(name_claim="name"), NOW_MS) == (
        user("bob"),
        NOW_MS + 1500,
    )


@pytest.mark.parametrize("change", [
    {"exp": NOW_S - 30}, {"exp": None}, {"exp": "soon"}, {"exp": True}, {"exp": float("inf")}, {"exp": float("nan")},
    {"exp": -1}, {"exp": 10**30}, {"iat": NOW_S + 31}, {"nbf": NOW_S + 31}, {"nbf": "x"}, {"iat": None},
    {"iss": "https://issuer/"}, {"iss": None}, {"iss": ["https://issuer"]}, {"aud": "no"}, {"aud": None}, {"aud": []},
    {"aud": [["tidemill"]]}, {"aud": {"tidemill": 1}}, {"sub": ""}, {"sub": " "}, {"sub": None}, {"sub": 7},
    {"sub": "x" * 250},
])  # fmt: skip
def test_refused_claims(change: dict[str, Any]) -> None:
    with pytest.raises(TokenRejected):
        check_claims(claims(**change), RULES, NOW_MS)


def test_missing_expiry() -> None:
    with pytest.raises(TokenRejected, match="exp"):
        check_claims({"sub": "alice"}, TokenRules(), NOW_MS)
