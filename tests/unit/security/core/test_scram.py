"""SCRAM: the RFC's example, our own client, hostile messages, and no difference for users that do not exist."""

import base64
import contextlib
import hmac
import os
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.client.kafka import sasl
from tidemill.client.kafka.options import Credentials
from tidemill.model.errors import SaslAuthenticationFailed, UnacceptableCredential
from tidemill.security.core.scram import (
    BY_LABEL,
    DEFAULT_ITERATIONS,
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    MESSAGE_BYTES_MAX,
    WRONG_LOGIN,
    CredentialShape,
    ScramCredential,
    ScramMechanism,
    ScramServer,
    check_parameters,
    credential_from_password,
    credential_from_salted,
    decoy,
    has_password,
    salted_password,
)

SHA_256 = ScramMechanism.SHA_256
SALT = bytes(range(32))
SECRET = b"k" * 32
PENCIL = credential_from_password(SHA_256, "pencil", SALT, ITERATIONS_MIN)


def test_example_of_rfc_7677() -> None:
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    credential = credential_from_password(SHA_256, "pencil", salt, 4096)
    server = ScramServer(SHA_256, "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")
    assert server.first(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO") == "user"
    challenge = server.challenge(credential, is_known=True)
    assert challenge == b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    final = (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    assert server.finish(final) == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def log_in(mechanism: ScramMechanism, name: str, password: str, credential: ScramCredential, *, known: bool) -> str:
    """Log in with the project's own client; the name that the server read."""
    client = sasl.exchange(Credentials(mechanism.label, name, password), "client-nonce")
    server = ScramServer(mechanism, "server-nonce")
    read = server.first(next(client))
    final = client.send(server.challenge(credential, is_known=known))
    with pytest.raises(StopIteration):
        client.send(server.finish(final))
    return read


@pytest.mark.parametrize("mechanism", list(ScramMechanism))
@pytest.mark.parametrize("name", ["alice", "a,b=c", "=2C", "müller", "日本"])
def test_own_client(mechanism: ScramMechanism, name: str) -> None:
    credential = credential_from_password(mechanism, "pässword, =", os.urandom(16), 4096)
    assert log_in(mechanism, name, "pässword, =", credential, known=True) == name


@pytest.mark.parametrize("mechanism", list(ScramMechanism))
def test_wrong_password_and_unknown_user_are_the_same(mechanism: ScramMechanism) -> None:
    right = credential_from_password(mechanism, "right", SALT)
    for credential, known in ((right, True), (decoy(mechanism, "alice", SECRET), False)):
        with pytest.raises(SaslAuthenticationFailed) as refused:
            log_in(mechanism, "alice", "wrong", credential, known=known)
        assert str(refused.value) == WRONG_LOGIN


def test_a_decoy_never_logs_in() -> None:
    with pytest.raises(SaslAuthenticationFailed, match=WRONG_LOGIN):
        log_in(SHA_256, "alice", "pencil", PENCIL, known=False)


@pytest.mark.parametrize("mechanism", list(ScramMechanism))
def test_a_decoy_looks_like_a_credential(mechanism: ScramMechanism) -> None:
    real = credential_from_password(mechanism, "x", SALT)
    first, again, other = (decoy(mechanism, name, SECRET) for name in ("a", "a", "b"))
    assert first == again
    assert first.salt != other.salt
    assert decoy(mechanism, "a", b"other").salt != first.salt
    assert (len(first.salt), first.iterations) == (len(real.salt), DEFAULT_ITERATIONS)
    assert [len(first.stored_key), len(first.server_key)] == [len(real.stored_key), len(real.server_key)]


def test_salted_password_gives_the_same_credential() -> None:
    salted = salted_password(SHA_256, "pencil", SALT, ITERATIONS_MIN)
    assert credential_from_salted(SHA_256, salted, SALT, ITERATIONS_MIN) == PENCIL
    assert has_password(PENCIL, salted)
    assert not has_password(PENCIL, salted[::-1])


@pytest.mark.parametrize("iterations", [-1, 0, 1, ITERATIONS_MIN - 1, ITERATIONS_MAX + 1, 2**31 - 1])
def test_iterations_are_bounded(iterations: int) -> None:
    with pytest.raises(UnacceptableCredential, match="iterations"):
        credential_from_salted(SHA_256, b"x" * 32, SALT, iterations)


@pytest.mark.parametrize("make", [
    lambda: credential_from_salted(SHA_256, b"x" * 31, SALT, 4096),
    lambda: credential_from_salted(SHA_256, b"x" * 32, b"", 4096),
    lambda: credential_from_salted(SHA_256, b"x" * 32, b"s" * 257, 4096),
    lambda: credential_from_password(SHA_256, "", SALT),
])  # fmt: skip
def test_unacceptable_credentials(make: Callable[[], ScramCredential]) -> None:
    with pytest.raises(UnacceptableCredential):
        make()


@pytest.mark.parametrize("message", [
    b"", b"n", b"n,", b"n,,", b"n,,n=alice", b"n,,r=x,n=alice", b"n,,n=,r=x", b"n,,n=alice,r=", b"n,,n=al=ice,r=x",
    b"n,,n=a=2c,r=x", b"n,,m=ext,n=alice,r=x", b"n,,n=alice,r=x,tokenauth=true", b"n,,n=alice,r=x,=",
    b"n,,n=alice,r=x,1=2", b"n,,n=alice,r=\xc3\xa4", b"n,,n=\xff,r=x", b"n,x,n=alice,r=x", b"n,a=bob,n=alice,r=x",
    b"p=tls-unique,,n=alice,r=x", b"x,,n=alice,r=x", b"n,,n=a\0,r=x", b"n,,n=alice,r=a b",
    b"n,,n=alice,r=" + b"x" * 300,
    b"n,,n=" + b"a" * 250 + b",r=x", b"n,,n=alice,r=x,e=" + b"x" * MESSAGE_BYTES_MAX,
])  # fmt: skip
def test_invalid_first_messages(message: bytes) -> None:
    with pytest.raises(SaslAuthenticationFailed):
        ScramServer(SHA_256, "s").first(message)


@pytest.mark.parametrize("header", [b"n,,", b"y,,", b"n,a=alice,"])
def test_accepted_headers(header: bytes) -> None:
    server = ScramServer(SHA_256, "s")
    assert server.first(header + b"n=alice,r=c,ext=1") == "alice"
    server.challenge(PENCIL, is_known=True)
    with pytest.raises(SaslAuthenticationFailed, match=WRONG_LOGIN):  # past the check of the binding
        server.finish(b"c=" + base64.b64encode(header) + b",r=cs,p=" + base64.b64encode(bytes(32)))


PROOF = base64.b64encode(bytes(32))


@pytest.mark.parametrize("message", [
    b"", b"c=biws,r=cs", b"c=biws,p=" + PROOF, b"r=cs,c=biws,p=" + PROOF, b"c=eSws,r=cs,p=" + PROOF,
    b"c=biws,r=cs2,p=" + PROOF,
    b"c=biws,r=scs,p=" + PROOF, b"c=biws,r=cccs,p=" + PROOF, b"c=biws,r=ccs2,p=" + PROOF, b"c=biws,r=cscs,p=" + PROOF,
    b"c=biws,r=c,p=" + PROOF, b"c=biws,r=,p=" + PROOF, b"c=%%,r=cs,p=" + PROOF,
    b"c=biws,r=cs,p=", b"c=biws,r=cs,p=AAAA", b"c=biws,r=cs,p=!!", b"c=biws,r=cs,p=" + base64.b64encode(bytes(64)),
    b"\xff", b"c=biws,r=\xc3\xa4,p=" + PROOF, b"c=\xc3\xa4,r=cs,p=" + PROOF,
])  # fmt: skip
def test_invalid_final_messages(message: bytes) -> None:
    server = ScramServer(SHA_256, "s")
    server.first(b"n,,n=alice,r=c")
    server.challenge(PENCIL, is_known=True)
    with pytest.raises(SaslAuthenticationFailed, match="not valid"):
        server.finish(message)


def test_the_repeated_nonce_of_old_librdkafka_logs_in() -> None:
    """librdkafka before 2.6.1, which kcat of Debian 12 has, sends c + c + s instead of c + s."""
    server = ScramServer(SHA_256, "s")
    server.first(b"n,,n=alice,r=c")
    challenge = server.challenge(PENCIL, is_known=True)
    unproved = b"c=biws,r=ccs"
    salted = salted_password(SHA_256, "pencil", SALT, ITERATIONS_MIN)
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    signature = hmac.digest(PENCIL.stored_key, b",".join([b"n=alice,r=c", challenge, unproved]), "sha256")
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    assert server.finish(unproved + b",p=" + base64.b64encode(proof)).startswith(b"v=")


def test_the_proof_has_one_try() -> None:
    server = ScramServer(SHA_256, "s")
    with pytest.raises(SaslAuthenticationFailed, match="too early"):
        server.finish(b"c=biws,r=s,p=" + PROOF)
    server.first(b"n,,n=alice,r=c")
    server.challenge(PENCIL, is_known=True)
    for why in (WRONG_LOGIN, "too early"):
        with pytest.raises(SaslAuthenticationFailed, match=why):
            server.finish(b"c=biws,r=cs,p=" + PROOF)


@given(st.binary(max_size=200) | st.text(alphabet="nyp,=arcm2CD3\x00é").map(str.encode))
def test_any_first_message_is_read_or_refused(message: bytes) -> None:
    with contextlib.suppress(SaslAuthenticationFailed):
        assert ScramServer(SHA_256, "s").first(message)


@given(st.binary(max_size=200) | st.text(alphabet="c=biws,rp\x00é").map(str.encode))
def test_any_final_message_is_refused(message: bytes) -> None:
    server = ScramServer(SHA_256, "s")
    server.first(b"n,,n=alice,r=c")
    server.challenge(PENCIL, is_known=True)
    with pytest.raises(SaslAuthenticationFailed):
        server.finish(message)


def test_names_of_mechanisms() -> None:
    assert set(BY_LABEL) == {"SCRAM-SHA-256", "SCRAM-SHA-512"}


def test_a_decoy_has_a_shape_that_users_have() -> None:
    """Most unknown users look like most users, and a new user changes the shape of few."""
    shapes = [CredentialShape(4096, 26)] * 9 + [CredentialShape(8192, 100)]
    names = [f"name{number}" for number in range(200)]

    def found(known: list[CredentialShape]) -> list[CredentialShape]:
        made = [decoy(ScramMechanism.SHA_256, name, b"secret", known) for name in names]
        return [CredentialShape(each.iterations, len(each.salt)) for each in made]

    before = found(shapes)
    assert 150 < before.count(shapes[0]) < 200
    after = found(sorted([*shapes, shapes[0]]))
    assert sum(old != new for old, new in zip(before, after, strict=True)) < 10
    assert len({decoy(ScramMechanism.SHA_256, name, b"secret", shapes).salt for name in names}) == len(names)


def test_the_largest_message_and_the_most_iterations_are_accepted() -> None:
    check_parameters(SHA_256, SALT, ITERATIONS_MAX)
    check_parameters(SHA_256, SALT, ITERATIONS_MIN)
    beginning = b"n,,n=alice,r="
    longest = beginning + b"x" * (4096 - len(beginning))
    with pytest.raises(SaslAuthenticationFailed, match="its nonce is not valid"):
        ScramServer(SHA_256, "nonce").first(longest)
    with pytest.raises(SaslAuthenticationFailed, match="larger than 4096 bytes"):
        ScramServer(SHA_256, "nonce").first(longest + b"x")


@pytest.mark.parametrize(("size", "is_valid"), [(7, False), (8, True), (256, True), (257, False)])
def test_a_salt_has_8_to_256_bytes(size: int, is_valid: bool) -> None:
    with contextlib.nullcontext() if is_valid else pytest.raises(UnacceptableCredential):
        check_parameters(SHA_256, b"s" * size, ITERATIONS_MIN)
