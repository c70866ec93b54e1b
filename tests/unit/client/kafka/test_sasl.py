"""The messages of PLAIN and SCRAM, compared with the examples of their RFCs."""

import pytest

from tidemill.client.kafka.errors import AuthenticationFailed
from tidemill.client.kafka.options import Credentials
from tidemill.client.kafka.sasl import exchange

# RFC 7677, section 3
NONCE = "rOprNGfwEbeRWgbNEkqO"
CHALLENGE = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
PROOF = b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
VERDICT = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
USER = Credentials("SCRAM-SHA-256", "user", "pencil")


def test_plain_sends_one_message() -> None:
    steps = exchange(Credentials("PLAIN", "u", "p"), NONCE)
    assert next(steps) == b"\0u\0p"
    with pytest.raises(StopIteration):
        steps.send(b"")


def test_scram_is_that_of_the_rfc() -> None:
    steps = exchange(USER, NONCE)
    assert next(steps) == b"n,,n=user,r=" + NONCE.encode()
    assert steps.send(CHALLENGE) == PROOF
    with pytest.raises(StopIteration):
        steps.send(VERDICT)


def test_names_with_commas_are_escaped() -> None:
    assert next(exchange(Credentials("SCRAM-SHA-512", "a,b=c", "x"), "n")) == b"n,,n=a=2Cb=3Dc,r=n"


@pytest.mark.parametrize(
    "challenge",
    [
        CHALLENGE.replace(b"r=rOpr", b"r=xOpr"),
        CHALLENGE.replace(b"i=4096", b"i=1"),
        CHALLENGE.replace(b"i=4096", b"i=99999999"),
        CHALLENGE.replace(b"s=W22Z", b"s=!"),
        b"e=other-error",
        b"\xff",
    ],
)
def test_a_broker_that_does_not_keep_to_scram_is_refused(challenge: bytes) -> None:
    steps = exchange(USER, NONCE)
    next(steps)
    with pytest.raises(AuthenticationFailed):
        steps.send(challenge)


@pytest.mark.parametrize("verdict", [b"v=AAAA", b"e=invalid-proof", b""])
def test_a_broker_that_does_not_know_the_password_is_refused(verdict: bytes) -> None:
    steps = exchange(USER, NONCE)
    next(steps)
    steps.send(CHALLENGE)
    with pytest.raises(AuthenticationFailed, match="did not prove that it knows the password of user"):
        steps.send(verdict)
