"""Tokens that the issuer has not made, or not for this broker or this moment: none logs a client in."""

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from tests.hostile.frames import Peer
from tests.hostile.logins import authenticate, bearer, handshake
from tests.hostile.secured import AUDIENCE, ISSUER, SecuredBroker, secured_broker, unsigned
from tests.support.tokens import Issuer

FAILED = 58
OAUTHBEARER = "OAUTHBEARER"
RIGHT = {"iss": ISSUER, "aud": AUDIENCE}
HOUR_S = 3_600
OTHER = Issuer("first")
SMALL = Issuer("second")


@pytest.fixture(scope="module")
def broker() -> Iterator[SecuredBroker]:
    with secured_broker() as started:
        with started.watched():
            yield started
        assert '"level": "error"' not in started.log_text()


def login(peer: Peer, token: str, **more: Any) -> Any:
    """The last answer to a token."""
    handshake(peer, OAUTHBEARER)
    answer = authenticate(peer, bearer(token, **more))
    if not answer.error_code and answer.auth_bytes:
        assert json.loads(answer.auth_bytes) == {"status": "invalid_token"}, "the answer says why"
        return authenticate(peer, b"\x01")
    return answer


def claims(name: Any = "alice", **more: Any) -> dict[str, Any]:
    """Claims that the broker accepts, unless `more` says otherwise; None leaves a claim out."""
    now = int(time.time())
    made = {"sub": name, "iat": now, "exp": now + HOUR_S, **RIGHT, **more}
    return {key: value for key, value in made.items() if value is not None}


def signed(issuer: Issuer, payload: bytes | Mapping[str, Any], head: Mapping[str, Any] | None = None) -> str:
    """A token with any payload and head, signed with the key `first` of an issuer."""
    content = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    headers = {key: value for key, value in {"kid": "first", **(head or {})}.items() if value is not None}
    token: str = jwt.PyJWS().encode(content, issuer.keys["first"], "RS256", headers=headers)
    return token


def with_public_key(issuer: Issuer) -> str:
    """HS256, with the public key as the secret."""
    parts = unsigned({"alg": "HS256", "kid": "first", "typ": "JWT"}, claims()).rpartition(".")[0]
    made = hmac.digest(issuer.public_pem("first"), parts.encode(), "sha256")
    return f"{parts}.{base64.urlsafe_b64encode(made).rstrip(b'=').decode()}"


def with_modulus(issuer: Issuer) -> str:
    """HS256, with the document of the keys as the secret."""
    parts = unsigned({"alg": "HS256", "kid": "first"}, claims()).rpartition(".")[0]
    made = hmac.digest(hashlib.sha256(issuer.document()).digest(), parts.encode(), "sha256")
    return f"{parts}.{base64.urlsafe_b64encode(made).rstrip(b'=').decode()}"


def altered(issuer: Issuer) -> str:
    """The payload of one token with the signature of another."""
    head, _, signature = signed(issuer, claims()).split(".")
    return f"{head}.{signed(issuer, claims('admin')).split('.')[1]}.{signature}"


def swapped_head(issuer: Issuer) -> str:
    """The head says another algorithm than the signature has."""
    _, payload, signature = signed(issuer, claims()).split(".")
    head = base64.urlsafe_b64encode(b'{"alg":"RS512","kid":"first"}').rstrip(b"=").decode()
    return f"{head}.{payload}.{signature}"


def own_key(issuer: Issuer, **head: Any) -> str:
    """A token signed with a key of the attacker, which the head brings along."""
    del issuer
    return signed(OTHER, claims(), head)


def _jwk() -> dict[str, Any]:
    made: dict[str, Any] = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(OTHER.keys["first"].public_key()))
    return made


TOKENS: dict[str, Callable[[Issuer], str]] = {
    "alg none": lambda _: unsigned({"alg": "none", "kid": "first"}, claims()),
    "alg None": lambda _: unsigned({"alg": "None", "kid": "first"}, claims()),
    "alg NONE with a signature": lambda _: unsigned({"alg": "NONE"}, claims(), b"x"),
    "no alg": lambda _: unsigned({"kid": "first"}, claims()),
    "alg is a list": lambda _: unsigned({"alg": ["RS256"]}, claims()),
    "alg is null": lambda _: unsigned({"alg": None}, claims()),
    "alg in lower case": lambda _: unsigned({"alg": "rs256", "kid": "first"}, claims(), b"x" * 256),
    "HS256 with the public key": with_public_key,
    "HS256 with the document": with_modulus,
    "HS256 with nothing": lambda _: jwt.encode(claims(), "x" * 32, "HS256", headers={"kid": "first"}),
    "own RSA key": own_key,
    "own RSA key without a kid": lambda _: own_key(_, kid=None),
    "own key in the head": lambda _: own_key(_, jwk=_jwk()),
    "own keys by address": lambda _: own_key(_, jku="http://127.0.0.1:1/keys", x5u="http://127.0.0.1:1/key"),
    "own EC key": lambda _: jwt.encode(
        claims(), ec.generate_private_key(ec.SECP256R1()), "ES256", headers={"kid": "first"}
    ),
    "unknown kid": lambda _: own_key(_, kid="third"),
    "kid is a path": lambda _: own_key(_, kid="../../../../dev/null"),
    "kid is SQL": lambda _: own_key(_, kid="x' UNION SELECT 'key"),
    "kid is a command": lambda _: own_key(_, kid="first|id"),
    "kid with a line feed": lambda _: own_key(_, kid="first\n{}"),
    "kid is long": lambda _: own_key(_, kid="k" * 5_000),
    "kid is a number": lambda issuer: unsigned({"alg": "RS256", "kid": 1}, claims(), b"x" * 256),
    "kid of the other key": lambda issuer: signed(issuer, claims(), {"kid": "second"}),
    "critical extension": lambda issuer: signed(issuer, claims(), {"crit": ["exp"], "exp": 1}),
    "payload outside": lambda issuer: signed(issuer, claims(), {"b64": False, "crit": ["b64"]}),
    "altered payload": altered,
    "another algorithm in the head": swapped_head,
    "empty signature": lambda issuer: signed(issuer, claims()).rpartition(".")[0] + ".",
    "no signature": lambda issuer: signed(issuer, claims()).rpartition(".")[0],
    "four parts": lambda issuer: signed(issuer, claims()) + ".x",
    "five parts": lambda issuer: "a.b.c.d.e",
    "spaces in the signature": lambda issuer: signed(issuer, claims()).replace(".", ".~", 2),
    "signature in another alphabet": lambda issuer: signed(issuer, claims()) + "/+",
    "padded": lambda issuer: signed(issuer, claims()) + "==",
    "expired": lambda issuer: issuer.token("alice", **RIGHT, exp=int(time.time()) - 1),
    "expired in 1970": lambda issuer: issuer.token("alice", **RIGHT, exp=0),
    "no expiry": lambda issuer: issuer.token("alice", **RIGHT, exp=None),
    "expiry is null": lambda issuer: signed(issuer, claims() | {"exp": None}),
    "expiry is text": lambda issuer: signed(issuer, claims() | {"exp": "9999999999"}),
    "expiry is true": lambda issuer: signed(issuer, claims(exp=True)),
    "expiry is a list": lambda issuer: signed(issuer, claims(exp=[9_999_999_999])),
    "expiry is infinite": lambda issuer: signed(issuer, claims() | {"exp": float("inf")}),
    "expiry is not a number": lambda issuer: signed(issuer, claims() | {"exp": float("nan")}),
    "expiry is huge": lambda issuer: signed(issuer, claims(exp=10**30)),
    "expiry is longer than a number": lambda issuer: signed(issuer, b'{"sub":"alice","exp":' + b"9" * 6_000 + b"}"),
    "expiry is negative": lambda issuer: signed(issuer, claims(exp=-1)),
    "not yet valid": lambda issuer: issuer.token("alice", **RIGHT, nbf=int(time.time()) + HOUR_S),
    "made in the future": lambda issuer: issuer.token("alice", **RIGHT, iat=int(time.time()) + HOUR_S),
    "start is text": lambda issuer: signed(issuer, claims(nbf="now")),
    "another issuer": lambda issuer: issuer.token("alice", iss="https://evil.example", aud=AUDIENCE),
    "issuer with a slash": lambda issuer: issuer.token("alice", iss=ISSUER + "/", aud=AUDIENCE),
    "issuer in capitals": lambda issuer: issuer.token("alice", iss=ISSUER.upper(), aud=AUDIENCE),
    "issuer is a list": lambda issuer: signed(issuer, claims(iss=[ISSUER])),
    "no issuer": lambda issuer: issuer.token("alice", aud=AUDIENCE),
    "another audience": lambda issuer: issuer.token("alice", iss=ISSUER, aud="other"),
    "part of the audience": lambda issuer: issuer.token("alice", iss=ISSUER, aud=AUDIENCE[:-1]),
    "audience is an object": lambda issuer: signed(issuer, claims(aud={AUDIENCE: True})),
    "audiences of others": lambda issuer: issuer.token("alice", iss=ISSUER, aud=["a", "b"]),
    "no audience": lambda issuer: issuer.token("alice", iss=ISSUER),
    "no user": lambda issuer: signed(issuer, claims(None)),
    "user is empty": lambda issuer: signed(issuer, claims("")),
    "user is blank": lambda issuer: signed(issuer, claims(" \t\n")),
    "user with a line feed": lambda issuer: signed(issuer, claims("alice\nadmin")),
    "user with a NUL": lambda issuer: signed(issuer, claims("alice\0")),
    "user from right to left": lambda issuer: signed(issuer, claims("\u202enimda")),
    "user is a list": lambda issuer: signed(issuer, claims(["alice"])),
    "user is a number": lambda issuer: signed(issuer, claims(7)),
    "user is an object": lambda issuer: signed(issuer, claims({"name": "admin"})),
    "user is long": lambda issuer: signed(issuer, claims("a" * 250)),
    "user in another claim": lambda issuer: signed(
        issuer, claims(None) | {"preferred_username": "admin", "name": "admin"}
    ),
    "last claim counts": lambda issuer: signed(issuer, json.dumps(claims()).encode()[:-1] + b',"exp":1}'),
    "payload is a list": lambda issuer: signed(issuer, b'["alice"]'),
    "payload is text": lambda issuer: signed(issuer, b'"alice"'),
    "payload is empty": lambda issuer: signed(issuer, b""),
    "payload is deep": lambda issuer: signed(issuer, b"[" * 5_000),
    "payload is not UTF-8": lambda issuer: signed(issuer, b'{"sub":"\xff"}'),
    "large": lambda issuer: signed(issuer, claims(more="x" * 20_000)),
    "many claims": lambda issuer: signed(issuer, {**claims(exp=1), **{f"c{number}": 1 for number in range(700)}}),
    "text": lambda _: "token",
    "dots": lambda _: "....",
    "two dots": lambda _: "..",
    "encrypted": lambda _: "eyJhbGciOiJSU0EtT0FFUCIsImVuYyI6IkEyNTZHQ00ifQ.a.b.c.d",
    "head is a list": lambda _: base64.urlsafe_b64encode(b"[]").decode().rstrip("=") + ".e30.x",
    "head is deep": lambda _: base64.urlsafe_b64encode(b"[" * 6_000).decode().rstrip("=") + ".e30.x",
}


@pytest.mark.parametrize("token", TOKENS)
def test_a_token_is_refused(broker: SecuredBroker, token: str) -> None:
    with broker.peer() as peer:
        answer = login(peer, TOKENS[token](broker.issuer))
        assert answer.error_code == FAILED, answer


def test_a_right_token_is_accepted(broker: SecuredBroker) -> None:
    """Otherwise the tokens above could be refused for another reason."""
    for token in (signed(broker.issuer, claims()), broker.issuer.token("alice", **RIGHT, key_id="second")):
        with broker.peer() as peer:
            assert not login(peer, token).error_code
            assert not peer.ask(3, 9, {"topics": [{"name": "honest"}]}).topics[0].error_code


def test_the_reason_is_in_the_log_and_not_in_the_answer(broker: SecuredBroker) -> None:
    with broker.peer() as peer:
        answer = login(peer, broker.issuer.token("alice", iss="https://evil.example", aud=AUDIENCE))
    assert "issuer" not in str(answer.error_message)
    assert "the token has another issuer" in broker.log_text()


@pytest.mark.parametrize("header", [b"n,a=admin,", b"n,a=mallory,", b"n,a=Alice,", b"y,a=alice=2C,"])
def test_a_token_acts_for_its_user_only(broker: SecuredBroker, header: bytes) -> None:
    with broker.peer() as peer:
        assert login(peer, signed(broker.issuer, claims()), header=header).error_code == FAILED
        assert peer.receive() is None


def test_a_login_ends_with_its_token(broker: SecuredBroker) -> None:
    """The client does not authenticate again: the next request closes the connection."""
    with broker.peer() as peer:
        answer = login(peer, signed(broker.issuer, claims(exp=int(time.time()) + 2)))
        lifetime_s = answer.session_lifetime.total_seconds()
        assert 0 < lifetime_s <= 2
        assert not peer.ask(3, 9, {"topics": [{"name": "honest"}]}).topics[0].error_code
        time.sleep(lifetime_s)
        peer.send(b"\0\0\0\x0e\0\x03\0\x01\0\0\0\0\xff\xff\xff\xff\xff\xff")
        assert peer.receive() is None


def test_the_session_of_a_token_lasts_as_long_as_the_token(broker: SecuredBroker) -> None:
    with broker.peer() as peer:
        answer = login(peer, signed(broker.issuer, claims()))
    assert HOUR_S - 60 < answer.session_lifetime.total_seconds() <= HOUR_S


def test_a_login_is_renewed_with_a_token_of_the_same_user_only(broker: SecuredBroker) -> None:
    with broker.peer() as peer:
        assert not login(peer, signed(broker.issuer, claims())).error_code
        assert not login(peer, signed(broker.issuer, claims())).error_code
        answer = login(peer, signed(broker.issuer, claims("admin")))
        assert answer.error_code == FAILED
        assert peer.receive() is None


def test_a_client_that_answers_a_refusal_with_a_token_is_refused(broker: SecuredBroker) -> None:
    with broker.peer() as peer:
        handshake(peer, OAUTHBEARER)
        assert authenticate(peer, bearer("a.b.c")).auth_bytes
        assert authenticate(peer, bearer(signed(broker.issuer, claims()))).error_code == FAILED
        assert peer.receive() is None
        peer.close()


def test_unknown_key_ids_do_not_read_the_keys_again_and_again(broker: SecuredBroker) -> None:
    """The keys are in a file; its access is not visible here, so the time of many logins is the measure."""
    tokens = [own_key(broker.issuer, kid=f"k{number}") for number in range(50)]
    for token in tokens:
        with broker.peer() as peer:
            assert login(peer, token).error_code == FAILED
    assert broker.log_text().count("token_keys_not_read") == 0
