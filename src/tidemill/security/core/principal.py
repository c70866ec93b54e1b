"""A principal: the user that a client has authenticated as."""

from typing import NamedTuple

from tidemill.model.errors import InvalidConfig

USER = "User"
NAME_CHARS_MAX = 249


class Principal(NamedTuple):
    """A kind and a name; written `User:alice`."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


ANONYMOUS = Principal(USER, "ANONYMOUS")
"""A client that has not authenticated."""


def user(name: str) -> Principal:
    """The principal of a user."""
    return Principal(USER, name)


def is_name(name: str) -> bool:
    """Whether a user can have this name. Control characters could forge lines of a log, or hide a part of a name."""
    return bool(name.strip()) and name.isprintable()


def parse_principal(text: str) -> Principal:
    """Parse `User:alice`."""
    kind, colon, name = text.strip().partition(":")
    if not colon or not kind or not name:
        raise InvalidConfig(f"{text[:60]!r} is not a principal; write User:name")
    return Principal(kind, name)


def parse_super_users(text: str) -> frozenset[Principal]:
    """Parse `super.users`: principals separated by semicolons."""
    return frozenset(parse_principal(part) for part in text.split(";") if part.strip())
