"""A token by which a broker proves, with a call over gRPC or HTTP, that it knows the cluster's secret.

The token names the client whose call is forwarded, so that the other broker checks that client's rights. It is an
HMAC-SHA256 over everything that it states, the method and the body of the call, and the broker that it is for. Nothing
of a call can be changed, and no call can be sent to another broker. The body is stated as a digest, so that a server
can check the token before it accepts the body. The time limits how long a token can be used. The number, which grows
with each token of one signer, lets the receiver refuse a token that it has seen.
"""

import base64
import binascii
import hmac
from collections.abc import Iterable
from hashlib import sha256
from typing import NamedTuple

from tidemill.model.errors import SaslAuthenticationFailed
from tidemill.security.core.principal import NAME_CHARS_MAX, Principal

CLOCK_TOLERANCE_MS = 300_000
"""The accepted difference between the time of a token and the receiver's clock, as Kerberos has it."""
TOKEN_CHARS_MAX = 4096
SIGNER_BYTES = 16
WINDOW = 4096
"""How much later than others of its signer a token may arrive."""
SIGNERS_MAX = 1000
"""Signers that are remembered: each broker has one for each of its runs."""
KAFKA_LOGIN = "kafka login"
"""The purpose of a token by which a broker logs in at a Kafka server for a client of its HTTP server."""
_VERSION = "t1"
_FIELDS = 10
_NUMBER_BYTES = 8
_NUMBER_MAX = 2**63 - 1
_HOST_CHARS_MAX = 255


class PeerTokenRejected(SaslAuthenticationFailed):
    """The call is not from a broker of this cluster."""


class PeerCall(NamedTuple):
    """What a token is for: the method that is called, with its body, at the broker `receiver`."""

    purpose: str
    receiver: int
    body: bytes


class PeerClaims(NamedTuple):
    """What a token states: the broker that forwards, and the client that it forwards for."""

    sender: int
    principal: Principal
    host: str
    expires_ms: int = 0
    """When the login of the client ends; 0 if it does not end by itself."""


class OpenedToken(NamedTuple):
    """What a valid token states. The receiver must still compare the body and refuse a token that it has seen."""

    claims: PeerClaims
    stamp: "PeerStamp"
    digest: bytes

    def is_for(self, body: bytes) -> bool:
        """Whether the token was made for this body."""
        return hmac.compare_digest(self.digest, sha256(body).digest())


class PeerStamp(NamedTuple):
    """What makes a token unique: who signs, the number of the token, and the time."""

    signer: bytes
    number: int
    time_ms: int


def write_peer_token(secret: bytes, call: PeerCall, claims: PeerClaims, stamp: PeerStamp) -> str:
    """The token of a call, printable ASCII."""
    stated = (
        str(claims.sender),
        _text(claims.principal.kind.encode()),
        _text(claims.principal.name.encode()),
        _text(claims.host.encode()),
        str(claims.expires_ms),
        _text(stamp.signer),
        str(stamp.number),
        str(stamp.time_ms),
        _text(sha256(call.body).digest()),
    )
    return ".".join((_VERSION, *stated, _text(_proof(secret, call.purpose, call.receiver, stated))))


def open_peer_token(secret: bytes, purpose: str, receiver: int, token: str, now_ms: int) -> OpenedToken:
    """What a valid token states; PeerTokenRejected otherwise."""
    if not secret:
        raise PeerTokenRejected("this broker is not part of a cluster, so no broker can forward calls to it")
    parts = token.split(".") if len(token) <= TOKEN_CHARS_MAX else []
    if len(parts) != _FIELDS + 1 or parts[0] != _VERSION:
        raise PeerTokenRejected("the token of the broker is malformed; run the same version on all brokers")
    stated, proof = tuple(parts[1:-1]), _bytes(parts[-1])
    if not hmac.compare_digest(_proof(secret, purpose, receiver, stated), proof):
        raise PeerTokenRejected("the token of the broker is not valid here; set the same cluster secret on all brokers")
    return _checked(stated, now_ms)


def _checked(stated: tuple[str, ...], now_ms: int) -> OpenedToken:
    """Parse what a broker of the cluster has signed."""
    sender, kind, name, host, expires_ms, signer, number, time_ms, digest = stated
    stamp = PeerStamp(_bytes(signer), _number(number), _number(time_ms))
    if abs(now_ms - stamp.time_ms) > CLOCK_TOLERANCE_MS:
        raise PeerTokenRejected(
            f"the clocks of brokers {sender} and this one differ by {abs(now_ms - stamp.time_ms)} ms, and "
            f"{CLOCK_TOLERANCE_MS} ms are accepted; synchronize them"
        )
    claims = PeerClaims(
        _number(sender), Principal(_words(kind), _words(name)), _words(host), expires_ms=_number(expires_ms)
    )
    is_whole = 0 < len(claims.principal.name) <= NAME_CHARS_MAX and len(claims.host) <= _HOST_CHARS_MAX
    if len(stamp.signer) != SIGNER_BYTES or not is_whole:
        raise PeerTokenRejected("the token of the broker has a field of a wrong length")
    return OpenedToken(claims, stamp, _bytes(digest))


class SeenTokens:
    """Refuses tokens that were used before. Only tokens that were read successfully may be given to it.

    For each signer it keeps the highest number, and a bit for each of the `WINDOW` numbers below. A signer is
    forgotten when its last token is no longer accepted by time.
    """

    def __init__(self) -> None:
        self._signers: dict[bytes, tuple[int, int, int]] = {}
        """Highest number, bits of the numbers below (bit 0 is the highest itself), time of the newest token."""

    def add(self, stamp: PeerStamp, now_ms: int) -> bool:
        """Whether this token is used for the first time."""
        highest, bits, newest_ms = self._signers.get(stamp.signer) or self._new_signer(now_ms)
        ahead = stamp.number - highest
        if ahead > 0:
            bits = ((bits << min(ahead, WINDOW)) | 1) & ((1 << WINDOW) - 1)
            highest = stamp.number
        elif -ahead >= WINDOW or bits >> -ahead & 1:
            return False
        else:
            bits |= 1 << -ahead
        self._signers[stamp.signer] = highest, bits, max(newest_ms, stamp.time_ms, now_ms)
        return True

    def __len__(self) -> int:
        return len(self._signers)

    def _new_signer(self, now_ms: int) -> tuple[int, int, int]:
        if len(self._signers) >= SIGNERS_MAX:
            oldest_ms = now_ms - 2 * CLOCK_TOLERANCE_MS
            self._signers = {each: known for each, known in self._signers.items() if known[2] >= oldest_ms}
        if len(self._signers) >= SIGNERS_MAX:
            raise PeerTokenRejected(f"{SIGNERS_MAX} brokers have sent tokens in the last minutes; try again later")
        return -1, 0, now_ms


def _proof(secret: bytes, purpose: str, receiver: int, stated: Iterable[str]) -> bytes:
    key = hmac.digest(secret, b"tidemill peer token 1", "sha256")
    parts = (
        purpose.encode("utf-8", "surrogatepass"),
        str(receiver).encode(),
        ".".join(stated).encode("utf-8", "surrogatepass"),
    )
    # The lengths separate the parts, so that no two calls are the same text.
    return hmac.digest(key, b"".join(len(part).to_bytes(_NUMBER_BYTES) + part for part in parts), "sha256")


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _bytes(text: str) -> bytes:
    try:
        found = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        found = b""
    if _text(found) != text:  # the last character has bits that do not count
        raise PeerTokenRejected("the token of the broker is malformed; run the same version on all brokers")
    return found


def _words(text: str) -> str:
    try:
        return _bytes(text).decode()
    except UnicodeDecodeError:
        raise PeerTokenRejected("the token of the broker names a client that is not UTF-8") from None


def _number(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or len(text) > len(str(_NUMBER_MAX)):
        raise PeerTokenRejected("the token of the broker has a field that is not a number")
    return int(text)
