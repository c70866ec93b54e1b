"""The documents of users, ACLs, quotas and rights. Names of operations and resources are those of `tidemill acl`."""

from typing import Annotated, Literal

import msgspec

from tidemill.wire.http.cluster import ServerRow
from tidemill.wire.http.document import Document, Input, PageQuery

USER_CHARS_MAX = 249
PASSWORD_CHARS_MAX = 1024
NAME_CHARS_MAX = 1000
NAMED_MAX = 100
"""The most principals, resources or addresses of one change."""
OPERATIONS_MAX = 20
CHANGED_ACLS_MAX = 1000
ITERATIONS = 8192
QUOTA_KINDS_MAX = 5

UserName = Annotated[str, msgspec.Meta(min_length=1, max_length=USER_CHARS_MAX)]
Password = Annotated[str, msgspec.Meta(min_length=1, max_length=PASSWORD_CHARS_MAX)]
ResourceName = Annotated[str, msgspec.Meta(min_length=1, max_length=NAME_CHARS_MAX)]
Word = Annotated[str, msgspec.Meta(min_length=1, max_length=60)]
Names = Annotated[tuple[ResourceName, ...], msgspec.Meta(max_length=NAMED_MAX)]
MechanismName = Literal["SCRAM-SHA-256", "SCRAM-SHA-512"]
ResourceWord = Literal["topic", "group", "transactional-id", "cluster"]
Iterations = Annotated[int, msgspec.Meta(ge=4096, le=16384)]


class ServersOfBroker(Document, frozen=True, kw_only=True):
    """The servers of one broker."""

    broker: int
    allows_anonymous: bool
    """Whether it serves clients without a login on addresses that other machines can reach."""
    servers: list[ServerRow]


class SecurityStatus(Document, frozen=True, kw_only=True):
    """How the cluster authenticates its clients, and what it checks."""

    checks_acls: bool
    requires_login: bool
    """Whether any server requires a login."""
    without_acls: Literal["denied", "allowed"]
    """What happens to a resource that no ACL names (allow.everyone.if.no.acl.found)."""
    acls_are_complete: bool
    """False: this broker cannot read an ACL, so it serves super users only."""
    users: int
    super_users: int
    acls: int | None
    quotas: int | None
    """Entities with quotas; null for a client that may not see them."""
    brokers: list[ServersOfBroker]
    unreachable_brokers: list[int]


class ClientIdentity(Document, frozen=True, kw_only=True):
    """The client that asks, and what it may do with the cluster."""

    principal: str
    host: str
    is_anonymous: bool
    is_super: bool
    checks_acls: bool
    cluster_operations: list[str]
    is_readonly: bool
    """Whether this console refuses every change."""


class UserQuery(PageQuery, frozen=True, kw_only=True):
    """Which users are listed."""

    sort: Literal["user", "super", "acls"] = "user"


class UserRow(Document, frozen=True, kw_only=True):
    """One user that logs in with a password."""

    user: str
    mechanisms: dict[str, int]
    """The iterations by mechanism."""
    super: bool | None
    """Null in commands that ask a broker, because it does not say."""
    acls: int | None
    """ACLs that name the user; null where none are checked, and in commands."""


class UserPage(Document, frozen=True, kw_only=True):
    """A page of users."""

    users: list[UserRow]
    total: int


class PasswordInput(Input, frozen=True, kw_only=True):
    """A new password, or `generate`. No mechanism keeps those of the user; a new user gets both."""

    password: Password | None = None
    generate: bool = False
    mechanisms: Annotated[list[MechanismName], msgspec.Meta(max_length=2)] | None = None
    iterations: Iterations = ITERATIONS

    def __repr__(self) -> str:
        return f"{type(self).__name__}(...)"  # a traceback or a log line must not have the password


class NewUserInput(PasswordInput, frozen=True, kw_only=True):
    """A new user."""

    user: UserName

    __repr__ = PasswordInput.__repr__


class ChangedCredentials(Document, frozen=True, kw_only=True):
    """The credentials of a user after a change."""

    user: str
    mechanisms: list[str]
    iterations: int
    password: str | None = None
    """The generated password. It is shown this once; the broker does not keep it."""

    def __repr__(self) -> str:
        return "ChangedCredentials(...)"


class UserRemovalQuery(Input, frozen=True, kw_only=True):
    """How a user is removed."""

    revoke_acls: bool = False
    """Delete the ACLs that name the user, too; otherwise they apply to the next user of this name."""
    last_super: bool = False
    """Remove the last super user that logs in with a password, or the client's own user."""


class AclQuery(PageQuery, frozen=True, kw_only=True):
    """Which ACLs are listed. A principal, or a resource with its name, selects all that apply to it."""

    search: Annotated[str, msgspec.Meta(max_length=NAME_CHARS_MAX, description="Part of a principal or a name.")] = ""
    sort: Literal["principal", "resource"] = "principal"
    principal: Annotated[str, msgspec.Meta(max_length=NAME_CHARS_MAX)] = ""
    resource: Literal["", "topic", "group", "transactional-id", "cluster", "delegation-token", "user"] = ""
    name: Annotated[str, msgspec.Meta(max_length=NAME_CHARS_MAX)] = ""
    permission: Literal["", "allow", "deny"] = ""


class AclRow(Document, frozen=True, kw_only=True):
    """One ACL."""

    principal: str
    permission: str
    operation: str
    resource: str
    name: str
    pattern: str
    host: str


class AclPage(Document, frozen=True, kw_only=True):
    """A page of ACLs."""

    acls: list[AclRow]
    total: int
    groups: dict[str, int]
    """How many of all selected ACLs each principal of this page has, or each resource, by what it is sorted by."""


class AclSelectionInput(Input, frozen=True, kw_only=True):
    """A description of ACLs, as the options of `tidemill acl`."""

    principals: Names = ()
    topics: Names = ()
    """Topics and timelines, which have the same ACLs."""
    groups: Names = ()
    transactional_ids: Names = ()
    cluster: bool = False
    prefix: bool = False
    """The names are the beginnings of names."""
    operations: Annotated[tuple[Word, ...], msgspec.Meta(max_length=OPERATIONS_MAX)] = ()
    producer: bool = False
    """What a producer needs: write, describe, create."""
    consumer: bool = False
    """What a consumer needs: read and describe; read on its groups."""
    hosts: Names = ()
    """IP addresses. None: every address."""
    deny: bool = False
    dry_run: bool = False
    accept_loss: bool = False
    """Make the change even if the client itself loses rights on the cluster."""


class AclGrantInput(AclSelectionInput, frozen=True, kw_only=True):
    """ACLs to create."""


class NamedAcl(Input, frozen=True, kw_only=True):
    """One exact ACL, as a list shows it."""

    principal: ResourceName
    permission: Literal["allow", "deny"]
    operation: Word
    resource: Word
    name: ResourceName
    pattern: Literal["literal", "prefixed"]
    host: Word


class AclRevocationInput(AclSelectionInput, frozen=True, kw_only=True):
    """ACLs to delete: exact ones, every one of some principals, or all that a description selects."""

    acls: Annotated[tuple[NamedAcl, ...], msgspec.Meta(max_length=CHANGED_ACLS_MAX)] = ()
    all: bool = False
    """Every ACL of the principals, ALLOW and DENY."""


class ChangedAcls(Document, frozen=True, kw_only=True):
    """The ACLs of a change, or of its preview."""

    acls: list[AclRow]
    dry_run: bool
    warnings: list[str]
    loses: list[str]
    """Operations on the cluster that the client itself loses."""


class RightsQuery(Input, frozen=True, kw_only=True):
    """Whose rights on which resource. Without a principal: those of the client itself."""

    principal: Annotated[str, msgspec.Meta(max_length=NAME_CHARS_MAX)] = ""
    resource: ResourceWord = "topic"
    name: Annotated[str, msgspec.Meta(max_length=NAME_CHARS_MAX)] = ""
    host: Annotated[str, msgspec.Meta(max_length=60)] = "*"
    """An IP address; `*` asks what holds at every address."""


class OperationRow(Document, frozen=True, kw_only=True):
    """Whether one operation is allowed, and the ACLs that decide; none are shown to clients that may not list them."""

    operation: str
    allowed: bool
    because: list[AclRow]


class EffectiveRights(Document, frozen=True, kw_only=True):
    """What a principal may do on a resource."""

    principal: str
    resource: str
    name: str
    host: str
    is_super: bool
    checks_acls: bool
    is_known: bool | None
    """Whether a user with a password has this name; null for a client that may not list users."""
    operations: list[OperationRow]
    elsewhere: list[AclRow]
    """ACLs that count from other addresses only."""


QuotaEntityDocument = dict[str, str | None]


class QuotaQuery(PageQuery, frozen=True, kw_only=True):
    """Which quotas are listed."""

    sort: Literal["entity"] = "entity"
    type: Literal["", "user", "client-id", "ip"] = ""


class QuotaRow(Document, frozen=True, kw_only=True):
    """The quotas of an entity: user, client-id, both, or ip. The name null is the default of its type."""

    entity: QuotaEntityDocument
    quotas: dict[str, float]


class QuotaPage(Document, frozen=True, kw_only=True):
    """A page of entities with quotas."""

    entities: list[QuotaRow]
    total: int


QuotaEntityInput = Annotated[
    dict[Literal["user", "client-id", "ip"], Annotated[str, msgspec.Meta(max_length=256)] | None],
    msgspec.Meta(min_length=1, max_length=2),
]


class QuotaChangeInput(Input, frozen=True, kw_only=True):
    """New quotas of an entity; null removes one."""

    entity: QuotaEntityInput
    quotas: Annotated[dict[Word, float | None], msgspec.Meta(min_length=1, max_length=QUOTA_KINDS_MAX)]
    dry_run: bool = False


class QuotaRemovalInput(Input, frozen=True, kw_only=True):
    """Quotas of an entity to remove; without names, all."""

    entity: QuotaEntityInput
    quotas: Annotated[list[Word], msgspec.Meta(max_length=QUOTA_KINDS_MAX)] | None = None


class AppliedQuotaQuery(Input, frozen=True, kw_only=True):
    """A client: its user and its client id, or its address."""

    user: Annotated[str, msgspec.Meta(max_length=256)] = ""
    client_id: Annotated[str, msgspec.Meta(max_length=256)] = ""
    ip: Annotated[str, msgspec.Meta(max_length=60)] = ""


class AppliedQuotaRow(Document, frozen=True, kw_only=True):
    """A quota of a client, and the entity that it comes from."""

    quota: str
    value: float
    entity: QuotaEntityDocument


class AppliedQuotas(Document, frozen=True, kw_only=True):
    """The quotas of one client."""

    quotas: list[AppliedQuotaRow]
