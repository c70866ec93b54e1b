"""The server's side of SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677), without IO.

A broker stores no password, only a credential made from it. The exchange has two messages of the client: `first` reads
the user's name, `challenge` answers with the salt, and `finish` checks the proof. The nonce is an argument.

A user that does not exist gets a challenge too, with a salt that stays the same for the name (`decoy`), and with the
iterations and the size of the salt that users have. The exchange fails at the same point with the same sentence as for
a wrong password, so a client cannot find out which users exist.
"""

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

from tidemill.model.errors import SaslAuthenticationFailed, UnacceptableCredential
from tidemill.security.core.principal import NAME_CHARS_MAX

ITERATIONS_MIN, ITERATIONS_MAX = 4096, 16384
"""Kafka's limits for AlterUserScramCredentials."""
DEFAULT_ITERATIONS = 8192
SALT_BYTES_MIN, SALT_BYTES_MAX = 8, 256
DEFAULT_SALT_BYTES = 32
MESSAGE_BYTES_MAX = 4096
NONCE_CHARS_MAX = 256
WRONG_LOGIN = "the user name or the password is wrong"
"""The only sentence for a failed login. It does not say which of the two is wrong."""

_PRINTABLE = re.compile(r"[\x21-\x2b\x2d-\x7e]+", re.ASCII)
_ESCAPED = re.compile(r"(?:[^=,\x00]|=2C|=3D)+")
_TOKEN_LOGIN = "tokenauth"  # noqa: S105 -- the name of an extension, not a secret


class ScramMechanism(Enum):
    """A mechanism: its name, its number in Kafka's protocol, and its hash function."""

    SHA_256 = ("SCRAM-SHA-256", 1, "sha256")
    SHA_512 = ("SCRAM-SHA-512", 2, "sha512")

    def __init__(self, label: str, number: int, digest: str) -> None:
        self.label = label
        self.number = number
        self.digest = digest
        self.key_bytes: int = hashlib.new(digest).digest_size


BY_LABEL = {each.label: each for each in ScramMechanism}
BY_NUMBER = {each.number: each for each in ScramMechanism}


class ScramCredential(NamedTuple):
    """What the broker stores instead of a password."""

    mechanism: ScramMechanism
    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes


class CredentialShape(NamedTuple):
    """What a challenge shows of a credential."""

    iterations: int
    salt_bytes: int


_DEFAULT_SHAPE = CredentialShape(DEFAULT_ITERATIONS, DEFAULT_SALT_BYTES)


def salted_password(mechanism: ScramMechanism, password: str, salt: bytes, iterations: int) -> bytes:
    """Stretch a password. This takes milliseconds, so a broker calls it in a thread."""
    return hashlib.pbkdf2_hmac(mechanism.digest, password.encode("utf-8", "surrogatepass"), salt, iterations)


def credential_from_password(
    mechanism: ScramMechanism, password: str, salt: bytes, iterations: int = DEFAULT_ITERATIONS
) -> ScramCredential:
    """The credential of a password."""
    if not password:
        raise UnacceptableCredential("the password is empty; choose another one")
    check_parameters(mechanism, salt, iterations)
    return credential_from_salted(mechanism, salted_password(mechanism, password, salt, iterations), salt, iterations)


def credential_from_salted(mechanism: ScramMechanism, salted: bytes, salt: bytes, iterations: int) -> ScramCredential:
    """The credential of a password that the client has already stretched (AlterUserScramCredentials)."""
    check_parameters(mechanism, salt, iterations)
    if len(salted) != mechanism.key_bytes:
        raise UnacceptableCredential(
            f"the salted password has {len(salted)} bytes; {mechanism.label} needs {mechanism.key_bytes}"
        )
    client_key = hmac.digest(salted, b"Client Key", mechanism.digest)
    stored_key = hashlib.new(mechanism.digest, client_key).digest()
    return ScramCredential(
        mechanism, salt, iterations, stored_key, hmac.digest(salted, b"Server Key", mechanism.digest)
    )


def check_parameters(mechanism: ScramMechanism, salt: bytes, iterations: int) -> None:
    """Reject parameters that are too weak, or so large that a login costs too much."""
    if iterations < ITERATIONS_MIN:
        raise UnacceptableCredential(
            f"{iterations} iterations are too few; {mechanism.label} needs at least {ITERATIONS_MIN}"
        )
    if iterations > ITERATIONS_MAX:
        raise UnacceptableCredential(
            f"{iterations} iterations are too many; {mechanism.label} allows at most {ITERATIONS_MAX}"
        )
    if not SALT_BYTES_MIN <= len(salt) <= SALT_BYTES_MAX:
        raise UnacceptableCredential(
            f"the salt has {len(salt)} bytes; choose {SALT_BYTES_MIN} to {SALT_BYTES_MAX} random bytes"
        )


def has_password(credential: ScramCredential, salted: bytes) -> bool:
    """Whether a stretched password belongs to the credential, compared in constant time."""
    client_key = hmac.digest(salted, b"Client Key", credential.mechanism.digest)
    return hmac.compare_digest(hashlib.new(credential.mechanism.digest, client_key).digest(), credential.stored_key)


def decoy(
    mechanism: ScramMechanism, name: str, secret: bytes, shapes: Sequence[CredentialShape] = ()
) -> ScramCredential:
    """A credential for a user that does not exist: stable for its name, and no password belongs to it.

    `shapes` are those of all users, in order. Its shape is one of them, so that it looks like a user's.
    """
    seed = f"{mechanism.label}\0{name}".encode("utf-8", "surrogatepass")
    place = int.from_bytes(hmac.digest(secret, b"shape\0" + seed, "sha256")[:4], "big")
    iterations, salt_bytes = shapes[place * len(shapes) >> 32] if shapes else _DEFAULT_SHAPE
    blocks = (hmac.digest(secret, b"salt%d\0" % each + seed, "sha256") for each in range(SALT_BYTES_MAX // 32))
    salt = b"".join(blocks)[:salt_bytes]
    keys = hmac.digest(secret, b"keys\0" + seed, "sha512"), hmac.digest(secret, b"more\0" + seed, "sha512")
    size = mechanism.key_bytes
    return ScramCredential(mechanism, salt, iterations, keys[0][:size], keys[1][:size])


class ScramServer:
    """One exchange. Call `first`, `challenge` and `finish` once each, in this order."""

    def __init__(self, mechanism: ScramMechanism, nonce: str) -> None:
        self._mechanism = mechanism
        self._nonce = nonce
        self._client_nonce = ""
        self._binding = b""
        self._bare = ""
        self._challenge = ""
        self._credential: ScramCredential | None = None
        self._is_known = False

    def first(self, message: bytes) -> str:
        """Read the client's first message; the name of the user."""
        text = _text(message)
        flag, _, rest = text.partition(",")
        authzid, comma, bare = rest.partition(",")
        if not comma:
            raise _invalid("it has no user")
        if flag.startswith("p="):
            raise SaslAuthenticationFailed("channel binding is not supported; use a mechanism without -PLUS")
        if flag not in {"n", "y"} or (authzid and not authzid.startswith("a=")):
            raise _invalid("its header is not valid")
        parts = bare.split(",")
        if len(parts) < 2 or not parts[0].startswith("n=") or not parts[1].startswith("r="):
            raise _invalid("it needs a user and a nonce; mandatory extensions are not supported")
        name = _unescaped(parts[0][2:])
        nonce = parts[1][2:]
        if len(nonce) > NONCE_CHARS_MAX or not _PRINTABLE.fullmatch(nonce):
            raise _invalid("its nonce is not valid")
        for part in parts[2:]:
            self._check_extension(part)
        if authzid and _unescaped(authzid[2:]) != name:
            raise SaslAuthenticationFailed("a user cannot log in as another user; leave out the authorization id")
        self._binding = f"{flag},{authzid},".encode()
        self._bare = bare
        self._client_nonce = nonce
        self._nonce = nonce + self._nonce
        return name

    def challenge(self, credential: ScramCredential, *, is_known: bool) -> bytes:
        """The answer to the first message. `is_known` is False for a decoy: its exchange always fails."""
        self._credential = credential
        self._is_known = is_known
        salt = base64.b64encode(credential.salt).decode()
        self._challenge = f"r={self._nonce},s={salt},i={credential.iterations}"
        return self._challenge.encode()

    def finish(self, message: bytes) -> bytes:
        """Check the client's proof; the answer proves that the broker knows the credential too."""
        credential = self._credential
        if credential is None:
            raise _invalid("it came too early")
        self._credential = None
        text = _text(message)
        unproved, separator, proof_text = text.rpartition(",p=")
        parts = unproved.split(",")
        if not separator or len(parts) < 2 or not parts[0].startswith("c=") or not parts[1].startswith("r="):
            raise _invalid("it needs a channel binding, a nonce and a proof")
        if _decoded(parts[0][2:]) != self._binding:
            raise _invalid("its channel binding is not the one of the first message")
        if not self._is_our_nonce(parts[1][2:]):
            raise _invalid("its nonce is not the broker's")
        proof = _decoded(proof_text)
        size = credential.mechanism.key_bytes
        if len(proof) != size:
            raise _invalid(f"its proof needs {size} bytes")
        return self._verified(credential, f"{self._bare},{self._challenge},{unproved}".encode(), proof)

    def _is_our_nonce(self, nonce: str) -> bool:
        """Whether the second message repeats the nonce of the challenge.

        librdkafka before 2.6.1 (kcat of Debian 12) puts its own nonce in front of it once more. The proof covers the
        challenge and this message, so that form protects against a replay as well. No other form is accepted.
        """
        given, expected = nonce.encode(), self._nonce.encode()
        doubled = self._client_nonce.encode() + expected
        return hmac.compare_digest(given, expected) or hmac.compare_digest(given, doubled)

    def _verified(self, credential: ScramCredential, signed: bytes, proof: bytes) -> bytes:
        digest = credential.mechanism.digest
        signature = hmac.digest(credential.stored_key, signed, digest)
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        is_right = hmac.compare_digest(hashlib.new(digest, client_key).digest(), credential.stored_key)
        verifier = hmac.digest(credential.server_key, signed, digest)
        if not (is_right and self._is_known):
            raise SaslAuthenticationFailed(WRONG_LOGIN)
        return b"v=" + base64.b64encode(verifier)

    def _check_extension(self, part: str) -> None:
        name, separator, value = part.partition("=")
        if not separator or not name.isascii() or not name.isalpha():
            raise _invalid("an extension is not name=value")
        if name == _TOKEN_LOGIN and value.lower() == "true":
            raise SaslAuthenticationFailed("delegation tokens are not supported; log in with a password")


def _text(message: bytes) -> str:
    if len(message) > MESSAGE_BYTES_MAX:
        raise _invalid(f"it is larger than {MESSAGE_BYTES_MAX} bytes")
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise _invalid("it is not UTF-8") from None


def _unescaped(text: str) -> str:
    if not _ESCAPED.fullmatch(text):
        raise _invalid("its user name is not valid")
    name = text.replace("=2C", ",").replace("=3D", "=")
    if len(name) > NAME_CHARS_MAX:
        raise _invalid(f"its user name is longer than {NAME_CHARS_MAX} characters")
    return name


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise _invalid("a field is not base64") from None


def _invalid(why: str) -> SaslAuthenticationFailed:
    return SaslAuthenticationFailed(f"the SCRAM message is not valid: {why}")
