"""The security of one broker: what servers ask before they serve a client."""

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass

from tidemill.model.security_settings import SecuritySettings
from tidemill.security.acls import Acls
from tidemill.security.audit import Audit
from tidemill.security.authenticator import Authenticator
from tidemill.security.authorizer import Authorizer
from tidemill.security.core.failing_producers import FailingProducers
from tidemill.security.core.principal import parse_super_users
from tidemill.security.core.throttle import Throttle
from tidemill.security.interface import SecurityStore
from tidemill.security.peers import PeerTokens
from tidemill.security.quotas import Quotas
from tidemill.security.request_login import RequestLogin
from tidemill.security.users import Users, user_with_password
from tidemill.supervision.supervisor import Supervisor

ADMIN = "admin"
"""The user that the file of TIDEMILL_ADMIN_PASSWORD_FILE creates."""

OWN_SECRET_BYTES = 32


@dataclass(slots=True)
class Security:
    """The parts of security. `acls` is None where no authorizer is on."""

    users: Users
    authenticator: Authenticator
    authorizer: Authorizer
    audit: Audit
    request_login: RequestLogin
    peers: PeerTokens
    quotas: Quotas
    throttle: Throttle
    failing_producers: FailingProducers
    acls: Acls | None = None

    async def start(self, supervisor: Supervisor, admin_password: str | None = None) -> None:
        """Read users, quotas and ACLs, and follow them until `stop`. With a password, create the user `admin`."""
        await self.users.start(supervisor)
        await self.quotas.start(supervisor)
        if self.acls is not None:
            await self.acls.start(supervisor)
        if admin_password is not None and self.users.find(ADMIN) is None:
            await self.users.create(ADMIN, user_with_password(admin_password, secrets.token_bytes, is_super=True))

    async def stop(self) -> None:
        """Stop following changes."""
        await self.users.stop()
        await self.quotas.stop()
        if self.acls is not None:
            await self.acls.stop()
        self.authenticator.close()


def make_security(
    store: SecurityStore,
    settings: SecuritySettings,
    clock_ms: Callable[[], int],
    *,
    is_authorizer_on: bool,
    node_id: int,
    cluster_secret: Callable[[], bytes],
) -> Security:
    """The security of a broker with these settings. The cluster's secret is known when the broker has joined it."""
    users, audit = Users(store), Audit()
    named = parse_super_users(settings.super_users)
    authorizer = Authorizer(
        lambda principal: principal in named or users.is_super(principal),
        is_enabled=is_authorizer_on,
        allow_everyone_if_no_acl_found=settings.allow_everyone_if_no_acl_found,
    )
    authenticator = Authenticator(
        users,
        token_bytes=secrets.token_bytes,
        steady_s=time.monotonic,
        clock_ms=clock_ms,
        cluster_secret=cluster_secret,
    )
    own_secret = secrets.token_bytes(OWN_SECRET_BYTES)
    throttle = Throttle(settings.quota_window_num, settings.quota_window_size_seconds)
    return Security(
        users,
        authenticator,
        authorizer,
        audit,
        RequestLogin(authenticator, audit, settings, token_bytes=secrets.token_bytes, steady_s=time.monotonic),
        # A broker without a cluster still signs what its HTTP server sends to its own Kafka server.
        PeerTokens(node_id, lambda: cluster_secret() or own_secret, token_bytes=secrets.token_bytes, clock_ms=clock_ms),
        Quotas(store, throttle.set_table),
        throttle,
        FailingProducers(settings.tidemill_failing_producer_percentage),
        Acls(store, authorizer.set_table) if is_authorizer_on else None,
    )
