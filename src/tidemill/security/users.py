"""The users of the cluster: their credentials are kept in coordination, and every broker follows them."""

import base64
import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import structlog

from tidemill.model.errors import InvalidRequest, KafkaStorageError, PolicyViolation, ResourceNotFound
from tidemill.security.core.plain import check_lengths
from tidemill.security.core.principal import ANONYMOUS, NAME_CHARS_MAX, USER, Principal, is_name
from tidemill.security.core.scram import (
    BY_LABEL,
    DEFAULT_ITERATIONS,
    DEFAULT_SALT_BYTES,
    CredentialShape,
    ScramCredential,
    ScramMechanism,
    credential_from_password,
)
from tidemill.security.directory import Directory, DirectoryChanges
from tidemill.security.interface import SecurityStore
from tidemill.supervision.supervisor import Supervisor

USERS = "security/users/"
USERS_MAX = 10_000
"""The most users of a cluster."""

RESERVED_NAMES = frozenset({ANONYMOUS.name, "*"})
"""`User:*` is every user in ACLs, and `User:ANONYMOUS` every client without a login."""

log = structlog.get_logger("tidemill.security")


@dataclass(frozen=True, slots=True)
class UserRecord:
    """One user: a credential for each mechanism, and whether it may do everything."""

    credentials: Mapping[ScramMechanism, ScramCredential] = field(default_factory=dict)
    is_super: bool = False


class Users:
    """The users as this broker knows them."""

    def __init__(self, store: SecurityStore) -> None:
        self._directory = Directory(store, USERS, self._changed)
        self._known: dict[str, UserRecord] = {}
        self._shapes: dict[ScramMechanism, tuple[int, list[CredentialShape]]] = {}
        self.version = 0
        """Grows with every change, so that cached passwords can be dropped."""

    async def start(self, supervisor: Supervisor) -> None:
        """Read the users, then follow their changes until `stop`."""
        await self._directory.start(supervisor)

    async def load(self) -> None:
        """Read the users once."""
        await self._directory.load()

    async def stop(self) -> None:
        """Stop following changes."""
        await self._directory.stop()

    def find(self, name: str) -> UserRecord | None:
        """The user with this name."""
        return self._known.get(name)

    def names(self) -> list[str]:
        """The names of all users."""
        return sorted(self._known)

    def shapes(self, mechanism: ScramMechanism) -> Sequence[CredentialShape]:
        """What challenges show of the users with a credential of this mechanism, in order."""
        version, found = self._shapes.get(mechanism, (-1, []))
        if version != self.version:
            credentials = (each.credentials.get(mechanism) for each in self._known.values())
            found = sorted(CredentialShape(each.iterations, len(each.salt)) for each in credentials if each is not None)
            self._shapes[mechanism] = self.version, found
        return found

    def is_super(self, principal: Principal) -> bool:
        """Whether a user was added as a super user."""
        found = self._known.get(principal.name) if principal.kind == USER else None
        return found is not None and found.is_super

    async def create(self, name: str, record: UserRecord) -> bool:
        """Add a user; False, and nothing changes, when there is one of this name."""
        self._check_name(name)
        is_new = True

        def edit(old: bytes | None) -> bytes:
            nonlocal is_new
            is_new = old is None
            return encode_user(record) if old is None else old

        await self._directory.update(name, edit)
        return is_new

    async def set_password(self, name: str, record: UserRecord) -> None:
        """Replace the credentials of a user; whether it is a super user stays."""

        def edit(old: bytes | None) -> bytes:
            if old is None:
                raise ResourceNotFound(f"there is no user {name[:NAME_CHARS_MAX]}")
            return encode_user(replace(decode_user(old), credentials=record.credentials))

        await self._directory.update(name, edit)

    async def alter(
        self, name: str, credentials: Iterable[ScramCredential], removed: Collection[ScramMechanism] = ()
    ) -> None:
        """Remove and add credentials of a user in one write: no login sees only a part of the change.

        A missing user is created, and a user without a credential is removed.
        """
        added = {each.mechanism: each for each in credentials}
        if added:
            self._check_name(name)

        def edit(old: bytes | None) -> bytes | None:
            user = UserRecord() if old is None else decode_user(old)
            for mechanism in removed:
                if mechanism not in user.credentials:
                    raise ResourceNotFound(f"user {name[:NAME_CHARS_MAX]} has no credential of {mechanism.label}")
            rest = {each: known for each, known in user.credentials.items() if each not in removed} | added
            return encode_user(replace(user, credentials=rest)) if rest else None

        await self._directory.update(name, edit)

    async def remove(self, name: str) -> bool:
        """Remove a user; False when there is none of this name."""
        return await self._directory.delete(name)

    async def set_super(self, name: str, *, is_super: bool) -> None:
        """Let a user do everything, or no longer."""

        def edit(old: bytes | None) -> bytes:
            if old is None:
                raise ResourceNotFound(f"there is no user {name[:NAME_CHARS_MAX]}")
            return encode_user(replace(decode_user(old), is_super=is_super))

        await self._directory.update(name, edit)

    def _check_name(self, name: str) -> None:
        if len(name) > NAME_CHARS_MAX or not is_name(name):
            raise InvalidRequest(f"a user name has 1 to {NAME_CHARS_MAX} printable characters")
        if name in RESERVED_NAMES:
            raise InvalidRequest(f"no user can have the name {name}: ACLs for it are for other clients, too")
        if len(self._known) >= USERS_MAX and name not in self._known:
            raise PolicyViolation(f"there are {USERS_MAX} users already; remove one first")

    def _changed(self, changes: DirectoryChanges) -> None:
        for name, value in changes.items():
            self._known.pop(name, None)
            if value is None:
                continue
            try:
                self._known[name] = decode_user(value)
            except KafkaStorageError as error:
                log.error("user_unreadable", user=name, error=str(error))
        self.version += 1


def user_with_password(
    password: str,
    token_bytes: Callable[[int], bytes],
    *,
    is_super: bool = False,
    iterations: int = DEFAULT_ITERATIONS,
    mechanisms: Iterable[ScramMechanism] = tuple(ScramMechanism),
) -> UserRecord:
    """A user that logs in with this password by these mechanisms. This takes milliseconds."""
    check_lengths("", password)
    made = (
        credential_from_password(mechanism, password, token_bytes(DEFAULT_SALT_BYTES), iterations)
        for mechanism in mechanisms
    )
    return UserRecord({each.mechanism: each for each in made}, is_super)


def encode_user(user: UserRecord) -> bytes:
    """Encode a user for coordination."""
    credentials = {
        each.mechanism.label: {
            "salt": _text(each.salt),
            "iterations": each.iterations,
            "stored_key": _text(each.stored_key),
            "server_key": _text(each.server_key),
        }
        for each in user.credentials.values()
    }
    return json.dumps({"credentials": credentials, "super": user.is_super}, separators=(",", ":")).encode()


def decode_user(document: bytes) -> UserRecord:
    """Decode the output of `encode_user`; mechanisms of newer brokers are left out."""
    try:
        read = json.loads(document)
        found = (_credential(label, each) for label, each in read["credentials"].items() if label in BY_LABEL)
        return UserRecord({each.mechanism: each for each in found}, bool(read.get("super", False)))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise KafkaStorageError(f"a user in coordination cannot be read: {error}") from None


def _credential(label: str, each: Any) -> ScramCredential:
    return ScramCredential(
        BY_LABEL[label],
        base64.b64decode(each["salt"], validate=True),
        int(each["iterations"]),
        base64.b64decode(each["stored_key"], validate=True),
        base64.b64decode(each["server_key"], validate=True),
    )


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()
