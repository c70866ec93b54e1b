"""The SASL messages of PLAIN (RFC 4616) and SCRAM (RFC 5802, RFC 7677), without IO.

An exchange is a generator: it yields a message to send, receives the broker's response, and ends when the broker is
authenticated. With SCRAM the password is never sent, and the broker must prove that it knows it too.
"""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Generator

from tidemill.client.kafka.errors import AuthenticationFailed
from tidemill.client.kafka.options import Credentials

HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
ITERATIONS_MIN = 4096
ITERATIONS_MAX = 1_000_000
_NO_BINDING = "n,,"


def exchange(credentials: Credentials, nonce: str) -> Generator[bytes, bytes, None]:
    """The exchange of the mechanism of these credentials."""
    if credentials.mechanism == "PLAIN":
        return _plain(credentials)
    return _scram(credentials, nonce)


def _plain(credentials: Credentials) -> Generator[bytes, bytes, None]:
    yield f"\0{credentials.username}\0{credentials.password}".encode()


def _scram(credentials: Credentials, nonce: str) -> Generator[bytes, bytes, None]:
    name = HASHES[credentials.mechanism]
    user = credentials.username.replace("=", "=3D").replace(",", "=2C")
    opening = f"n={user},r={nonce}"
    challenge = (yield f"{_NO_BINDING}{opening}".encode()).decode(errors="replace")
    parts = _attributes(challenge)
    combined, salt, iterations = parts.get("r", ""), _decode(parts.get("s", "")), parts.get("i", "")
    if not combined.startswith(nonce) or len(combined) == len(nonce):
        raise AuthenticationFailed("the broker violated SCRAM: its nonce does not continue the client's")
    if not iterations.isdecimal() or not ITERATIONS_MIN <= int(iterations) <= ITERATIONS_MAX:
        raise AuthenticationFailed(f"the broker requests {iterations or 'no'} SCRAM iterations")
    salted = hashlib.pbkdf2_hmac(name, credentials.password.encode(), salt, int(iterations))
    ending = f"c={base64.b64encode(_NO_BINDING.encode()).decode()},r={combined}"
    signed = f"{opening},{challenge},{ending}".encode()
    client_key = hmac.digest(salted, b"Client Key", name)
    signature = hmac.digest(hashlib.new(name, client_key).digest(), signed, name)
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    verdict = _attributes((yield f"{ending},p={base64.b64encode(proof).decode()}".encode()).decode(errors="replace"))
    expected = hmac.digest(hmac.digest(salted, b"Server Key", name), signed, name)
    if not hmac.compare_digest(_decode(verdict.get("v", "")), expected):
        raise AuthenticationFailed(f"the broker did not prove that it knows the password of {credentials.username}")


def _attributes(message: str) -> dict[str, str]:
    return {part[:1]: part[2:] for part in message.split(",") if part[1:2] == "="}


def _decode(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise AuthenticationFailed("the broker violated SCRAM: a field is not base64") from None
