"""Logins that are malformed, out of order, replayed or of another user: each is refused and its connection closes."""

import base64
import os
import random
from collections.abc import Callable, Iterator

import pytest
from tests.hostile.frames import Peer, body, frame, request
from tests.hostile.logins import (
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    Scram,
    authenticate,
    bearer,
    handshake,
    log_in,
    plain,
)
from tests.hostile.secured import SecuredBroker, secured_broker

from tidemill.wire.kafka.cluster_proof import MECHANISM as BROKER_MECHANISM

FAILED, ILLEGAL_STATE, UNSUPPORTED = 58, 34, 33
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
OTHER_MECHANISMS = {
    "lower case": "plain",
    "another case": "Scram-Sha-256",
    "channel binding": "SCRAM-SHA-256-PLUS",
    "weak hash": "SCRAM-SHA-1",
    "other": "GSSAPI",
    "anonymous": "ANONYMOUS",
    "external": "EXTERNAL",
    "empty": "",
    "space": " PLAIN",
    "NUL": "PLAIN\0",
    "two": "PLAIN,SCRAM-SHA-256",
    "long": "PLAIN" * 2_000,
    "broker, nearly": BROKER_MECHANISM.lower(),
    "line feed": "PLAIN\nX",
    "wide letters": "".join(chr(ord(each) + 0xFEE0) for each in "PLAIN"),
}
PLAIN_MESSAGES = {
    "empty": b"",
    "one NUL": b"\0",
    "two NULs": b"\0\0",
    "many NULs": b"\0" * 1_000,
    "no password": b"\0alice\0",
    "no user": b"\0\0password",
    "two parts": b"alice\0password",
    "four parts": b"\0alice\0password\0",
    "not UTF-8": b"\0\xff\xfe\0password",
    "half a character": b"\0al\xed\xa0\x80ice\0password",
    "long name": b"\0" + b"a" * 3_000 + b"\0password",
    "long password": b"\0alice\0" + b"p" * 3_000,
    "longer than a message": b"\0alice\0" + b"p" * 30_000,
    "acts as admin": b"admin\0alice\0PASSWORD",
    "acts as a case": b"Alice\0alice\0PASSWORD",
    "acts as a space": b" \0alice\0PASSWORD",
    "another case": b"\0ALICE\0PASSWORD",
    "space behind": b"\0alice \0PASSWORD",
    "space before": b"\0 alice\0PASSWORD",
    "line feed": b"\0alice\n\0PASSWORD",
    "zero-width space": "\0alice\u200b\0PASSWORD".encode(),
    "wide letters": "\0\uff41\uff4c\uff49\uff43\uff45\0PASSWORD".encode(),
    "cyrillic letter": "\0\u0430lice\0PASSWORD".encode(),
    "soft hyphen": "\0al\u00adice\0PASSWORD".encode(),
    "combining": "\0alice\u0301\0PASSWORD".encode(),
    "kind of principal": b"\0User:alice\0PASSWORD",
    "anonymous": b"\0ANONYMOUS\0ANONYMOUS",
    "star": b"\0*\0*",
    "path": b"\0../alice\0PASSWORD",
    "password in front": b"\0alice\0xPASSWORD",
    "password behind": b"\0alice\0PASSWORDx",
    "password with a space": b"\0alice\0PASSWORD ",
    "SCRAM": b"n,,n=alice,r=abc",
    "JSON": b'{"user": "alice"}',
}
FIRST_MESSAGES = {
    "empty": b"",
    "NUL": b"\0",
    "no header": b"n=alice,r=abc",
    "half a header": b"n,n=alice,r=abc",
    "no nonce": b"n,,n=alice",
    "no user": b"n,,r=abc",
    "empty user": b"n,,n=,r=abc",
    "empty nonce": b"n,,n=alice,r=",
    "order": b"n,,r=abc,n=alice",
    "nonce with a control character": b"n,,n=alice,r=a\x01c",
    "nonce that is no ASCII": "n,,n=alice,r=ä".encode(),
    "long nonce": b"n,,n=alice,r=" + b"a" * 300,
    "not UTF-8": b"n,,n=\xff,r=abc",
    "escaped badly": b"n,,n=al=ice,r=abc",
    "escaped in lower case": b"n,,n=al=2cice,r=abc",
    "escape cut off": b"n,,n=alice=2,r=abc",
    "channel binding": b"p=tls-unique,,n=alice,r=abc",
    "channel binding, other": b"p=tls-server-end-point,,n=alice,r=abc",
    "channel binding without a type": b"p=,,n=alice,r=abc",
    "flag": b"x,,n=alice,r=abc",
    "long flag": b"nn,,n=alice,r=abc",
    "authorization id": b"n,a=admin,n=alice,r=abc",
    "authorization id, escaped": b"n,a=al=3Dice,n=alice,r=abc",
    "authorization id without a name": b"n,a=,n=alice,r=abc",
    "header of another kind": b"n,b=alice,n=alice,r=abc",
    "mandatory extension": b"n,,m=ext,n=alice,r=abc",
    "extension": b"n,,n=alice,r=abc,noequals",
    "token": b"n,,n=alice,r=abc,tokenauth=true",
    "long name": b"n,,n=" + b"a" * 300 + b",r=abc",
    "longer name": b"n,,n=" + b"a" * 60_000 + b",r=abc",
    "NUL in the name": b"n,,n=ali\0ce,r=abc",
    "PLAIN": b"\0alice\0password",
}
BEARER_MESSAGES = {
    "empty": b"",
    "only the end": b"\x01",
    "no token": b"n,,\x01auth=Bearer \x01\x01",
    "no scheme": b"n,,\x01auth=a.b.c\x01\x01",
    "another scheme": b"n,,\x01auth=Basic YWxpY2U6cA==\x01\x01",
    "two tokens": b"n,,\x01auth=Bearer a.b.c\x01auth=Bearer d.e.f\x01\x01",
    "no header": b"auth=Bearer a.b.c\x01\x01",
    "channel binding": b"p=tls-unique,,\x01auth=Bearer a.b.c\x01\x01",
    "one separator": b"n,,\x01auth=Bearer a.b.c\x01",
    "extension without a value": b"n,,\x01auth=Bearer a.b.c\x01trace\x01\x01",
    "extension with a digit": b"n,,\x01auth=Bearer a.b.c\x01t1=x\x01\x01",
    "not UTF-8": b"n,,\x01auth=Bearer \xff\x01\x01",
    "NUL": b"n,,\x01auth=Bearer a\0b\x01\x01",
    "line feed": b"n,,\x01auth=Bearer a\nb\x01\x01",
    "larger than a token": b"n,,\x01auth=Bearer " + b"a" * 40_000 + b"\x01\x01",
}


@pytest.fixture(scope="module")
def broker() -> Iterator[SecuredBroker]:
    with secured_broker() as started:
        before = started.state()
        with started.watched():
            yield started
        assert started.state() == before, "a login has changed something"
        assert '"level": "error"' not in started.log_text()


def refused(peer: Peer, message: bytes, code: int = FAILED, *, closes: bool = True) -> str:
    """The sentence of a refusal; the connection is closed after it, which takes a moment and is not always awaited."""
    answer = authenticate(peer, message)
    assert answer.error_code == code, answer
    assert not answer.auth_bytes
    assert not closes or peer.receive() is None
    return str(answer.error_message)


@pytest.mark.parametrize("message", PLAIN_MESSAGES)
def test_a_message_of_plain_is_refused(broker: SecuredBroker, message: str) -> None:
    password = broker.passwords["alice"]
    with broker.peer() as peer:
        handshake(peer, "PLAIN")
        reason = refused(peer, PLAIN_MESSAGES[message].replace(b"PASSWORD", password.encode()), closes=False)
    assert password not in reason


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("message", FIRST_MESSAGES)
def test_a_first_message_of_scram_is_refused(broker: SecuredBroker, message: str, mechanism: str) -> None:
    with broker.peer() as peer:
        handshake(peer, mechanism)
        refused(peer, FIRST_MESSAGES[message], closes=False)


@pytest.mark.parametrize("message", BEARER_MESSAGES)
def test_a_message_of_oauthbearer_is_refused(broker: SecuredBroker, message: str) -> None:
    with broker.peer() as peer:
        handshake(peer, "OAUTHBEARER")
        refused(peer, BEARER_MESSAGES[message], closes=False)


def _altered(final: bytes, old: bytes, new: bytes) -> bytes:
    assert old in final
    return final.replace(old, new, 1)


FINAL_MESSAGES: dict[str, Callable[[Scram, bytes], bytes]] = {
    "empty": lambda _, __: b"",
    "no proof": lambda made, challenge: made.final(challenge).partition(b",p=")[0],
    "empty proof": lambda made, challenge: made.final(challenge, proof=b""),
    "proof of zeros": lambda made, challenge: made.final(challenge, proof=bytes(32)),
    "short proof": lambda made, challenge: made.final(challenge, proof=bytes(31)),
    "long proof": lambda made, challenge: made.final(challenge, proof=bytes(1_000)),
    "random proof": lambda made, challenge: made.final(challenge, proof=os.urandom(32)),
    "proof that is no base64": lambda made, challenge: made.final(challenge).partition(b",p=")[0] + b",p=%%%%",
    "two proofs": lambda made, challenge: made.final(challenge) + b",p=" + base64.b64encode(bytes(32)),
    "nonce of the client": lambda made, challenge: made.final(challenge, nonce=made.nonce),
    "longer nonce": lambda made, challenge: _altered(made.final(challenge), b",p=", b"a,p="),
    "shorter nonce": lambda made, challenge: made.final(challenge, nonce=challenge.decode()[2:].partition(",")[0][:-1]),
    "another nonce": lambda made, challenge: made.final(challenge, nonce="a" * 60),
    "empty nonce": lambda made, challenge: made.final(challenge, nonce=""),
    "nonce that is no ASCII": lambda made, challenge: made.final(challenge, nonce="ä"),
    "binding of y": lambda made, challenge: made.final(challenge, binding=base64.b64encode(b"y,,").decode()),
    "binding of p": lambda made, challenge: made.final(challenge, binding=base64.b64encode(b"p=tls-unique,,").decode()),
    "empty binding": lambda made, challenge: made.final(challenge, binding=""),
    "binding with an authorization id": lambda made, challenge: made.final(
        challenge, binding=base64.b64encode(b"n,a=admin,").decode()
    ),
    "binding that is no base64": lambda made, challenge: made.final(challenge, binding="!"),
    "fewer iterations": lambda made, challenge: made.final(challenge, iterations=1),
    "more iterations": lambda made, challenge: made.final(challenge, iterations=10_000),
    "extension that is not signed": lambda made, challenge: _altered(made.final(challenge), b",p=", b",x=1,p="),
    "first message again": lambda made, _: made.first(),
    "challenge back": lambda _, challenge: challenge,
    "not UTF-8": lambda made, challenge: b"\xff" + made.final(challenge),
    "large": lambda made, challenge: made.final(challenge, extra=",x=" + "y" * 5_000),
}


@pytest.mark.parametrize("message", FINAL_MESSAGES)
def test_a_final_message_of_scram_is_refused(broker: SecuredBroker, message: str) -> None:
    """The password is right; one thing is not."""
    exchange = Scram("alice", broker.passwords["alice"])
    with broker.peer() as peer:
        handshake(peer, exchange.mechanism)
        challenge = authenticate(peer, exchange.first())
        assert not challenge.error_code
        refused(peer, FINAL_MESSAGES[message](exchange, challenge.auth_bytes), closes=False)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_the_connection_closes_after_a_refusal(broker: SecuredBroker, mechanism: str) -> None:
    with broker.peer() as peer:
        handshake(peer, mechanism)
        refused(peer, b"")


def test_a_proof_is_not_accepted_twice(broker: SecuredBroker) -> None:
    """The client chooses its nonce again; the nonce of the broker differs."""
    exchange = Scram("alice", broker.passwords["alice"])
    with broker.peer() as peer:
        handshake(peer, exchange.mechanism)
        final = exchange.final(authenticate(peer, exchange.first()).auth_bytes)
        assert not authenticate(peer, final).error_code
    with broker.peer() as peer:
        handshake(peer, exchange.mechanism)
        assert not authenticate(peer, exchange.first()).error_code
        refused(peer, final)


def test_a_proof_of_one_mechanism_is_not_one_of_the_other(broker: SecuredBroker) -> None:
    exchange = Scram("alice", broker.passwords["alice"], "SCRAM-SHA-256")
    with broker.peer() as peer:
        handshake(peer, "SCRAM-SHA-512")
        refused(peer, exchange.final(authenticate(peer, exchange.first()).auth_bytes))


def test_an_honest_header_is_accepted(broker: SecuredBroker) -> None:
    for header in ("n,,", "y,,", "n,a=alice,"):
        exchange = Scram("alice", broker.passwords["alice"], header=header)
        with broker.peer() as peer:
            handshake(peer, exchange.mechanism)
            final = exchange.final(authenticate(peer, exchange.first()).auth_bytes)
            assert not authenticate(peer, final).error_code


@pytest.mark.parametrize("mechanism", OTHER_MECHANISMS)
def test_another_mechanism_is_refused(broker: SecuredBroker, mechanism: str) -> None:
    with broker.peer() as peer:
        answer = handshake(peer, OTHER_MECHANISMS[mechanism])
        assert answer.error_code == UNSUPPORTED
        assert set(answer.mechanisms) == set(MECHANISMS)
        assert peer.receive() is None


@pytest.mark.parametrize("version", [-1, 0, 2, 3, 32_767])
def test_another_version_of_the_handshake_is_refused(broker: SecuredBroker, version: int) -> None:
    """Version 0 has no frames around the messages of the mechanism."""
    content = body(SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"})
    with broker.peer() as peer:
        whole = bytearray(frame(SASL_HANDSHAKE, 1, content))
        whole[6:8] = version.to_bytes(2, "big", signed=True)
        peer.send(bytes(whole) + b"\0\0\0\x0d\0alice\0secret")
        assert peer.receive() is None


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_login_without_a_handshake_is_refused(broker: SecuredBroker, mechanism: str) -> None:
    password = broker.passwords["alice"]
    made = {"PLAIN": plain("alice", password), "OAUTHBEARER": bearer(broker.issuer.token("alice"))}
    with broker.peer() as peer:
        refused(peer, made.get(mechanism, Scram("alice", password).first()), ILLEGAL_STATE)


@pytest.mark.parametrize("first", MECHANISMS)
@pytest.mark.parametrize("second", MECHANISMS)
def test_a_mechanism_cannot_be_exchanged_for_another(broker: SecuredBroker, first: str, second: str) -> None:
    with broker.peer() as peer:
        assert not handshake(peer, first).error_code
        answer = handshake(peer, second)
        assert answer.error_code == (0 if first == second else ILLEGAL_STATE)
        if first != second:
            assert peer.receive() is None


def test_a_handshake_in_the_middle_starts_again(broker: SecuredBroker) -> None:
    """The challenge of the first exchange is worth nothing in the second."""
    exchange = Scram("alice", broker.passwords["alice"])
    with broker.peer() as peer:
        handshake(peer, exchange.mechanism)
        challenge = authenticate(peer, exchange.first())
        assert not handshake(peer, exchange.mechanism).error_code
        refused(peer, exchange.final(challenge.auth_bytes))


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_a_message_after_the_login_is_refused(broker: SecuredBroker, mechanism: str) -> None:
    with broker.logged_in("alice", mechanism=mechanism) as peer:
        refused(peer, plain("alice", broker.passwords["alice"]), ILLEGAL_STATE)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_connection_stays_with_its_user(broker: SecuredBroker, mechanism: str) -> None:
    """Authenticating again as another user is refused, with the right password too."""
    with broker.logged_in("alice", mechanism=mechanism) as peer, pytest.raises(AssertionError, match="belongs to"):
        log_in(peer, "mallory", broker.passwords["mallory"], mechanism)
    with broker.logged_in("alice", mechanism=mechanism) as peer:
        log_in(peer, "alice", broker.passwords["alice"], mechanism)
        assert not peer.ask(3, 9, {"topics": [{"name": "honest"}]}).topics[0].error_code


def test_another_mechanism_for_the_second_login_is_refused(broker: SecuredBroker) -> None:
    with broker.logged_in("alice") as peer:
        assert handshake(peer, "PLAIN").error_code == ILLEGAL_STATE
        assert peer.receive() is None


def test_a_failed_second_login_ends_the_connection_with_what_was_sent_behind(broker: SecuredBroker) -> None:
    with broker.logged_in("alice", mechanism="PLAIN") as peer:
        peer.send(
            request(SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"})
            + request(SASL_AUTHENTICATE, 2, {"auth_bytes": plain("alice", "wrong")})
            + request(3, 9, {"topics": [{"name": "honest"}]})
        )
        assert peer.receive() is not None
        assert peer.receive() is not None
        assert peer.receive() is None


def test_the_secret_of_the_cluster_cannot_be_guessed(broker: SecuredBroker) -> None:
    for message in (b"", b"\0" * 36, os.urandom(36), os.urandom(60_000), plain("alice", broker.passwords["alice"])):
        with broker.peer() as peer:
            assert not handshake(peer, BROKER_MECHANISM).error_code
            answer = authenticate(peer, message)
            if not answer.error_code:
                answer = authenticate(peer, answer.auth_bytes)
            assert answer.error_code == FAILED, message
            assert peer.receive() is None


def test_the_proof_of_the_broker_is_not_the_proof_of_an_asker(broker: SecuredBroker) -> None:
    """What the broker sends to one connection is sent back on another."""
    hello = os.urandom(40)
    with broker.peer() as one, broker.peer() as other:
        for peer in (one, other):
            handshake(peer, BROKER_MECHANISM)
        mirrored = authenticate(one, hello)
        if not mirrored.error_code:
            assert authenticate(other, mirrored.auth_bytes).error_code
            assert authenticate(one, mirrored.auth_bytes[-32:]).error_code == FAILED


@pytest.mark.parametrize("mechanism", [*MECHANISMS, BROKER_MECHANISM])
def test_random_messages_are_refused(broker: SecuredBroker, mechanism: str) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    for _ in range(50):
        with broker.peer() as peer:
            handshake(peer, mechanism)
            for _ in range(3):
                answer = authenticate(peer, rng.randbytes(rng.randrange(200)))
                if answer.error_code:
                    break
            assert answer.error_code == FAILED


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("cut", ["half", "twice", "garbage", "tags"])
def test_a_request_of_the_login_that_is_no_request_closes(broker: SecuredBroker, mechanism: str, cut: str) -> None:
    whole = body(SASL_AUTHENTICATE, 2, {"auth_bytes": b"x" * 100})
    altered = {
        "half": whole[: len(whole) // 2],
        "twice": b"\xff\xff\xff\xff\x0f" + whole,
        "garbage": os.urandom(64) + b"\xff" * 8,
        "tags": whole[:-1] + b"\xff\xff\xff\xff\x0f",
    }
    with broker.peer() as peer:
        handshake(peer, mechanism)
        peer.send(frame(SASL_AUTHENTICATE, 2, altered[cut]))
        answer = peer.receive()
        assert answer is None or b"\0\x3a" in answer[:9]
        assert peer.receive() is None
