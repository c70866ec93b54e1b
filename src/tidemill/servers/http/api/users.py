"""Users in the JSON API. Passwords arrive in bodies only; the Kafka server gets and stores salted keys of them.

Two removals are refused unless the request insists: of the last super user that logs in with a password, and of the
client's own user. Afterwards, perhaps only who has the machine of the broker could change users.
"""

import asyncio
import secrets
from collections import Counter
from collections.abc import Callable, Sequence

from tidemill.broker.credential_changes import password_changes, removals
from tidemill.client.kafka.acls import AclFields, AclFilterFields
from tidemill.client.kafka.client import KafkaClient
from tidemill.client.kafka.users import ScramDeletion, ScramUpsertion
from tidemill.model.errors import SaslAuthenticationFailed
from tidemill.security.core.plain import check_lengths
from tidemill.security.core.principal import is_name, user
from tidemill.security.core.scram import BY_LABEL
from tidemill.security.security import Security
from tidemill.servers.http.api.acls import raise_first
from tidemill.servers.http.api.api_call import ApiCall
from tidemill.servers.http.api.api_context import ApiContext, ApiHandler
from tidemill.servers.http.api.api_problem import ApiProblem
from tidemill.servers.http.api.paging import rows_of
from tidemill.wire.http.security import (
    ChangedCredentials,
    NewUserInput,
    PasswordInput,
    UserPage,
    UserQuery,
    UserRemovalQuery,
    UserRow,
)

GENERATED_BYTES = 24
MECHANISMS = tuple(sorted(BY_LABEL))


async def list_users(context: ApiContext, call: ApiCall[UserQuery, None]) -> UserPage:
    """A page of the users that log in with a password."""
    query, security = call.query, context.broker.security
    acls = await asyncio.to_thread(acl_counts, security)
    found = [name for name in security.users.names() if query.search in name]
    shown = rows_of(found, query, _sort_key(security, query.sort, acls))
    return UserPage(users=[_row(security, name, acls) for name in shown], total=len(found))


def acl_counts(security: Security) -> Counter[str] | None:
    """How many ACLs name each principal; None where no ACLs are checked."""
    return None if security.acls is None else security.acls.table.counts()


def _row(security: Security, name: str, acls: Counter[str] | None) -> UserRow:
    record = security.users.find(name)
    credentials = {} if record is None else record.credentials
    return UserRow(
        user=name,
        mechanisms={
            each.label: made.iterations for each, made in sorted(credentials.items(), key=lambda it: it[0].label)
        },
        super=security.authorizer.is_super(user(name)),
        acls=None if acls is None else acls[str(user(name))],
    )


def _sort_key(security: Security, column: str, acls: Counter[str] | None) -> Callable[[str], tuple[int, str]]:
    def key(name: str) -> tuple[int, str]:
        if column == "super":
            return int(not security.authorizer.is_super(user(name))), name
        return (acls[str(user(name))] if column == "acls" and acls is not None else 0), name

    return key


async def add_user(context: ApiContext, call: ApiCall[None, NewUserInput]) -> ChangedCredentials:
    """Add a user that may do nothing until an ACL allows it."""
    name = call.body.user
    if name.startswith("User:"):
        raise ApiProblem(400, "give the name of the user without User:")
    if not is_name(name):
        raise ApiProblem(400, "the name of a user has printable characters only")
    if context.broker.security.users.find(name) is not None:
        raise ApiProblem(409, f"user {name} exists; change the password instead")
    return await _set(context, call, name, call.body.mechanisms or MECHANISMS, ())


async def set_password(context: ApiContext, call: ApiCall[None, PasswordInput]) -> ChangedCredentials:
    """Change the password of a user. No mechanism keeps the old one."""
    name = call.name("user")
    known = _mechanisms_of(context, name)
    mechanisms = tuple(call.body.mechanisms or known or MECHANISMS)
    return await _set(context, call, name, mechanisms, sorted(set(known) - set(mechanisms)))


async def _set(
    context: ApiContext,
    call: ApiCall[None, PasswordInput] | ApiCall[None, NewUserInput],
    name: str,
    mechanisms: Sequence[str],
    dropped: Sequence[str],
) -> ChangedCredentials:
    body: PasswordInput = call.body
    password = _chosen(body)
    labels = sorted(set(mechanisms))

    def work(client: KafkaClient) -> None:
        changes = password_changes(name, password, labels, body.iterations, secrets.token_bytes, dropped=dropped)
        _alter(client, name, changes)

    await context.as_client(call.rights, work)
    return ChangedCredentials(
        user=name, mechanisms=labels, iterations=body.iterations, password=password if body.generate else None
    )


def _chosen(body: PasswordInput) -> str:
    if body.generate != (body.password is None):
        raise ApiProblem(400, "give either a password or generate")
    if body.password is None:
        return secrets.token_urlsafe(GENERATED_BYTES)
    if "\0" in body.password:
        raise ApiProblem(400, "the password has a NUL character; choose another one")
    try:
        check_lengths("", body.password)
    except SaslAuthenticationFailed:
        raise ApiProblem(400, "the password is too long; choose one of at most 1024 bytes") from None
    return body.password


async def remove_user(context: ApiContext, call: ApiCall[UserRemovalQuery, None]) -> None:
    """Remove a user, which cannot log in again. Open connections stay open."""
    name, query = call.name("user"), call.query
    mechanisms = _mechanisms_of(context, name)
    refusal = removal_refusal(context.broker.security, call.rights.principal == user(name), name)
    if refusal is not None and not query.last_super:
        raise ApiProblem(409, f"{refusal}; to remove it anyway, repeat the request with last_super=true")

    def work(client: KafkaClient) -> None:
        _alter(client, name, removals(name, mechanisms))
        if query.revoke_acls:
            named = client.acls(AclFilterFields(principal=str(user(name))))
            raise_first(client.delete_acls([AclFields(*each) for each in named]))

    await context.as_client(call.rights, work)


def removal_refusal(security: Security, is_own: bool, name: str) -> str | None:
    """Why a user should not be removed; None if nothing speaks against it."""
    supers = [each for each in security.users.names() if security.authorizer.is_super(user(each))]
    if supers == [name] and security.authorizer.is_enabled:
        return f"{name} is the last super user that logs in with a password"
    return "this is your own user, and you could not log in again" if is_own else None


def _mechanisms_of(context: ApiContext, name: str) -> list[str]:
    record = context.broker.security.users.find(name)
    if record is None:
        raise ApiProblem(404, f"there is no user {name[:60]}; add it first")
    return sorted(each.label for each in record.credentials)


def _alter(client: KafkaClient, name: str, changes: Sequence[ScramUpsertion | ScramDeletion]) -> None:
    error = client.alter_users(changes).get(name)
    if error is not None:
        raise error


HANDLERS: dict[str, ApiHandler] = {
    "GET /api/v1/users": list_users,
    "POST /api/v1/users": add_user,
    "PUT /api/v1/users/{user}/password": set_password,
    "DELETE /api/v1/users/{user}": remove_user,
}
