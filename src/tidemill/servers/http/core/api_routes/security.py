"""The routes of users, ACLs and quotas."""

from tidemill.security.core.resources import Operation
from tidemill.servers.http.core.route_access import (
    CLUSTER,
    PAGE,
    LoginNeed,
    RouteAccess,
    RouteRight,
    RouteShapes,
    optional,
)
from tidemill.wire.http.security import (
    AclGrantInput,
    AclPage,
    AclQuery,
    AclRevocationInput,
    AppliedQuotaQuery,
    AppliedQuotas,
    ChangedAcls,
    ChangedCredentials,
    ClientIdentity,
    EffectiveRights,
    NewUserInput,
    PasswordInput,
    QuotaChangeInput,
    QuotaPage,
    QuotaQuery,
    QuotaRemovalInput,
    QuotaRow,
    RightsQuery,
    SecurityStatus,
    UserPage,
    UserQuery,
    UserRemovalQuery,
)

_DESCRIBE = RouteRight(Operation.DESCRIBE, CLUSTER)
_ALTER = RouteRight(Operation.ALTER, CLUSTER)
_DESCRIBE_QUOTAS = RouteRight(Operation.DESCRIBE_CONFIGS, CLUSTER)
_ALTER_QUOTAS = RouteRight(Operation.ALTER_CONFIGS, CLUSTER)
_OWN = optional(Operation.DESCRIBE, CLUSTER, "for more than the client's own rights")


def _read(path: str, right: RouteRight, shapes: RouteShapes) -> RouteAccess:
    return RouteAccess("GET", path, LoginNeed.LOGIN, (right,), shapes=shapes)


def _change(method: str, path: str, right: RouteRight, shapes: RouteShapes) -> RouteAccess:
    return RouteAccess(method, path, LoginNeed.LOGIN, (right,), shapes=shapes, changes=True)


ROUTES: tuple[RouteAccess, ...] = (
    _read("/security", _OWN, RouteShapes("Show how clients log in, and who you are.", media_type=PAGE)),
    _read("/security/users", _DESCRIBE, RouteShapes("Show the users.", query=UserQuery, media_type=PAGE)),
    _read("/security/acls", _DESCRIBE, RouteShapes("Show the ACLs.", query=AclQuery, media_type=PAGE)),
    _read("/security/quotas", _DESCRIBE_QUOTAS, RouteShapes("Show the quotas.", query=QuotaQuery, media_type=PAGE)),
    _read("/security/rights", _OWN, RouteShapes("Show what a user may do.", query=RightsQuery, media_type=PAGE)),
    _read("/api/v1/me", _OWN, RouteShapes("Describe the client that asks.", ClientIdentity)),
    _read("/api/v1/security", _DESCRIBE, RouteShapes("Describe logins, TLS and ACLs of the cluster.", SecurityStatus)),
    _read(
        "/api/v1/security/rights",
        _OWN,
        RouteShapes("Explain what a principal may do on a resource.", EffectiveRights, RightsQuery),
    ),
    _read("/api/v1/users", _DESCRIBE, RouteShapes("List the users that log in with a password.", UserPage, UserQuery)),
    _change("POST", "/api/v1/users", _ALTER, RouteShapes("Add a user.", ChangedCredentials, body=NewUserInput)),
    _change(
        "PUT",
        "/api/v1/users/{user}/password",
        _ALTER,
        RouteShapes("Change the password of a user.", ChangedCredentials, body=PasswordInput),
    ),
    _change("DELETE", "/api/v1/users/{user}", _ALTER, RouteShapes("Remove a user.", query=UserRemovalQuery)),
    _read("/api/v1/acls", _DESCRIBE, RouteShapes("List ACLs.", AclPage, AclQuery)),
    _change(
        "POST", "/api/v1/acls", _ALTER, RouteShapes("Create ACLs, or preview them.", ChangedAcls, body=AclGrantInput)
    ),
    _change(
        "POST",
        "/api/v1/acls/revocations",
        _ALTER,
        RouteShapes("Delete ACLs, or preview that.", ChangedAcls, body=AclRevocationInput),
    ),
    _read("/api/v1/quotas", _DESCRIBE_QUOTAS, RouteShapes("List quotas.", QuotaPage, QuotaQuery)),
    _read(
        "/api/v1/quotas/applied",
        _DESCRIBE_QUOTAS,
        RouteShapes("Show the quotas that apply to one client.", AppliedQuotas, AppliedQuotaQuery),
    ),
    _change("PUT", "/api/v1/quotas", _ALTER_QUOTAS, RouteShapes("Set quotas.", QuotaRow, body=QuotaChangeInput)),
    _change(
        "POST",
        "/api/v1/quotas/removals",
        _ALTER_QUOTAS,
        RouteShapes("Remove quotas.", QuotaRow, body=QuotaRemovalInput),
    ),
)
