"""The principal of a TLS client: the subject of its certificate, mapped by `ssl.principal.mapping.rules`."""

import asyncio

import structlog

from tidemill.model.errors import TidemillError
from tidemill.model.security_settings import SecuritySettings
from tidemill.security.core.distinguished_name import distinguished_name
from tidemill.security.core.principal import ANONYMOUS, Principal, user
from tidemill.security.core.principal_rules import apply_rules, parse_rules

SUBJECT_SHOWN_CHARS = 200

log = structlog.get_logger("tidemill.security")


def certificate_principal(transport: asyncio.BaseTransport, settings: SecuritySettings) -> Principal | None:
    """The principal; ANONYMOUS for a client without a certificate, None for a name that no rule maps."""
    certificate = transport.get_extra_info("peercert")
    if not certificate:
        return ANONYMOUS
    name = distinguished_name(certificate.get("subject", ()))
    try:
        return user(apply_rules(parse_rules(settings.ssl_principal_mapping_rules), name))
    except TidemillError as error:
        log.warning("client_certificate_refused", subject=name[:SUBJECT_SHOWN_CHARS], reason=str(error))
        return None
