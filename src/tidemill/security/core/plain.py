"""The message of the mechanism PLAIN (RFC 4616): authorization id, user and password, separated by NUL."""

from typing import NamedTuple

from tidemill.model.errors import SaslAuthenticationFailed
from tidemill.security.core.principal import NAME_CHARS_MAX

PASSWORD_BYTES_MAX = 1024
MESSAGE_BYTES_MAX = 4096
_PARTS = 3


class PlainLogin(NamedTuple):
    """A user's name and password."""

    name: str
    password: str

    def __repr__(self) -> str:
        return f"PlainLogin(name={self.name!r})"  # a traceback or a log line must not have the password


def parse_plain(message: bytes) -> PlainLogin:
    """Parse the only message of the client. The authorization id must be empty or the user (CVE-2017-12610)."""
    if len(message) > MESSAGE_BYTES_MAX:
        raise _invalid(f"it is larger than {MESSAGE_BYTES_MAX} bytes")
    try:
        parts = message.decode().split("\0")
    except UnicodeDecodeError:
        raise _invalid("it is not UTF-8") from None
    if len(parts) != _PARTS:
        raise _invalid("it needs an authorization id, a user and a password")
    authzid, name, password = parts
    if not name or not password:
        raise _invalid("the user or the password is empty")
    check_lengths(name, password)
    if authzid and authzid != name:
        raise SaslAuthenticationFailed("a user cannot log in as another user; leave out the authorization id")
    return PlainLogin(name, password)


def check_lengths(name: str, password: str) -> None:
    """Reject a name or a password that no user can have."""
    if len(name) > NAME_CHARS_MAX:
        raise _invalid(f"the user name is longer than {NAME_CHARS_MAX} characters")
    if len(password.encode("utf-8", "surrogatepass")) > PASSWORD_BYTES_MAX:
        raise _invalid(f"the password is longer than {PASSWORD_BYTES_MAX} bytes")


def _invalid(why: str) -> SaslAuthenticationFailed:
    return SaslAuthenticationFailed(f"the PLAIN message is not valid: {why}")
