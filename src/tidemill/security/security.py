"""The security of one broker: what servers ask before they serve a client."""

from dataclasses import dataclass, field

from tidemill.security.acls import Acls
from tidemill.security.audit import Audit
from tidemill.security.authorizer import Authorizer


def no_authorizer() -> Authorizer:
    """An authorizer that is off: every client may do everything."""
    return Authorizer(lambda _: False, is_enabled=False)


@dataclass(slots=True)
class Security:
    """The parts of security. `acls` is None where no authorizer is on."""

    authorizer: Authorizer = field(default_factory=no_authorizer)
    acls: Acls | None = None
    audit: Audit = field(default_factory=Audit)
