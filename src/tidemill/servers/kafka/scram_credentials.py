"""DescribeUserScramCredentials and AlterUserScramCredentials: the users of the cluster."""

from collections import Counter
from typing import TYPE_CHECKING, Any

from tidemill.model.errors import (
    DuplicateResource,
    ResourceNotFound,
    TidemillError,
    UnacceptableCredential,
    UnsupportedSaslMechanism,
)
from tidemill.security.core.resources import CLUSTER_NAME, Operation, ResourceType
from tidemill.security.core.scram import BY_NUMBER, ScramCredential, ScramMechanism, credential_from_salted
from tidemill.servers.kafka.api import Call, error_code, error_message

if TYPE_CHECKING:
    from kio.schema.alter_user_scram_credentials.v0.request import AlterUserScramCredentialsRequest
    from kio.schema.alter_user_scram_credentials.v0.response import AlterUserScramCredentialsResponse
    from kio.schema.describe_user_scram_credentials.v0.request import DescribeUserScramCredentialsRequest
    from kio.schema.describe_user_scram_credentials.v0.response import DescribeUserScramCredentialsResponse


async def describe_user_scram_credentials(
    call: Call["DescribeUserScramCredentialsResponse"], request: "DescribeUserScramCredentialsRequest"
) -> "DescribeUserScramCredentialsResponse":
    """The mechanisms and iterations of users; no salt and no key."""
    call.check(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)
    users = call.broker.security.users
    asked = [each.name for each in request.users or ()] or users.names()
    counted = Counter(asked)
    results = []
    async for name in call.in_slices(counted):
        found = users.find(name)
        error: TidemillError | None = None
        if counted[name] > 1:
            error = DuplicateResource(f"the request names {name[:60]!r} twice; name each user once")
        elif found is None:
            error = ResourceNotFound(f"there is no user {name[:60]!r}; add it with: tidemill user add NAME")
        known = () if found is None or error is not None else found.credentials.values()
        infos = tuple(
            call.part("CredentialInfo", mechanism=each.mechanism.number, iterations=each.iterations) for each in known
        )
        results.append(
            call.part(
                "DescribeUserScramCredentialsResult",
                user=name,
                error_code=error_code(error),
                error_message=error_message(error),
                credential_infos=infos,
            )
        )
    return call.response(error_code=0, error_message=None, results=tuple(results))


async def alter_user_scram_credentials(
    call: Call["AlterUserScramCredentialsResponse"], request: "AlterUserScramCredentialsRequest"
) -> "AlterUserScramCredentialsResponse":
    """Add, replace and remove credentials. A user that the request names twice is not changed."""
    denial = call.denial(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME)
    changes: dict[str, list[Any]] = {}
    every: tuple[Any, ...] = (*request.deletions, *request.upsertions)
    for each in every:
        changes.setdefault(each.name, []).append(each)
    results = []
    async for name in call.in_slices(changes):
        error: TidemillError | None = denial
        try:
            if denial is None:
                await _alter(call, name, changes[name])
        except TidemillError as caught:
            error = caught
        results.append(
            call.part(
                "AlterUserScramCredentialsResult",
                user=name,
                error_code=error_code(error),
                error_message=error_message(error),
            )
        )
    return call.response(results=tuple(results))


async def _alter(call: Call, name: str, changes: list[Any]) -> None:
    users, audit = call.broker.security.users, call.broker.security.audit
    mechanisms = [_mechanism(each.mechanism) for each in changes]
    if len(set(mechanisms)) < len(mechanisms):
        raise DuplicateResource(f"the request changes a credential of {name[:60]!r} twice; change each once")
    if not name:
        raise UnacceptableCredential("the user name is empty")
    added: list[ScramCredential] = []
    removed: list[ScramMechanism] = []
    for each, mechanism in zip(changes, mechanisms, strict=True):
        if hasattr(each, "salted_password"):
            salted, salt = bytes(each.salted_password), bytes(each.salt)
            added.append(credential_from_salted(mechanism, salted, salt, each.iterations))
        else:
            removed.append(mechanism)
    await users.alter(name, added, removed)
    for mechanism in removed:
        audit.changed(call.principal, call.client_host, "credential_removed", user=name, mechanism=mechanism.label)
    for credential in added:
        audit.changed(
            call.principal, call.client_host, "credential_set", user=name, mechanism=credential.mechanism.label
        )


def _mechanism(number: int) -> ScramMechanism:
    found = BY_NUMBER.get(int(number))
    if found is None:
        raise UnsupportedSaslMechanism(f"{number} is not the number of a SCRAM mechanism; use 1 or 2")
    return found
