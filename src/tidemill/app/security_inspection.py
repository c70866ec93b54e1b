"""What is unsafe in the settings of a broker, and which certificates are damaged or expire.

`tidemill doctor` prints it. A broker logs the certificates: clients refuse one that has expired, and the broker itself
would not notice.
"""

from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import structlog
from cryptography import x509

from tidemill.app.engine_urls import ENCRYPT_WITH, unverified_engines
from tidemill.app.exposure import exposed_servers, refusal
from tidemill.broker.health import CertificateNote
from tidemill.model.errors import InvalidConfig
from tidemill.model.listeners import GRPC, HTTP, has_authentication, server_security
from tidemill.model.security_settings import SecuritySettings
from tidemill.security.tls import server_context, tls_files
from tidemill.settings import Settings

EXPIRES_SOON_DAYS = 30

log = structlog.get_logger("tidemill.tls")


class SecurityFinding(NamedTuple):
    """One check: `state` is fine, note or wrong."""

    check: str
    state: str
    found: str
    advice: str = ""


def security_findings(settings: Settings, now: datetime) -> list[SecurityFinding]:
    """Logins, certificates and connections to engines. Nothing is changed."""
    return [_logins(settings), *_certificates(settings, now), *_engines(settings)]


def warn_about_certificates(settings: Settings, now: datetime) -> tuple[CertificateNote, ...]:
    """Log and return the certificates that have expired, or expire soon."""
    notes = tuple(
        CertificateNote(each.check, each.found, each.advice)
        for each in _certificates(settings, now)
        if each.state != "fine"
    )
    for note in notes:
        log.warning("certificate_expires", **note._asdict())
    return notes


def _logins(settings: Settings) -> SecurityFinding:
    exposed = exposed_servers(settings)
    if exposed and not settings.broker.security.allow_anonymous:
        return SecurityFinding("logins", "wrong", refusal(settings, exposed), "see docs/guides/security.md")
    if exposed:
        return SecurityFinding("logins", "note", f"everyone may connect to {', '.join(exposed)}", "see allow.anonymous")
    if has_authentication(settings.broker, settings.listeners):
        return SecurityFinding("logins", "fine", "clients must log in")
    return SecurityFinding("logins", "fine", "none; only this machine can connect")


def certificate_expiries(settings: Settings) -> dict[str, datetime]:
    """When the certificate of each server expires; a file that cannot be read is left out."""
    found: dict[str, datetime] = {}
    for name, security in _secured(settings).items():
        with suppress(InvalidConfig):
            found[name] = _expiry(tls_files(security, name).certificate)
    return found


def _certificates(settings: Settings, now: datetime) -> list[SecurityFinding]:
    """The certificate of each server that uses TLS; servers with the same file have one finding."""
    found = [_certificate(name, each, now) for name, each in _secured(settings).items()]
    return list({finding.check: finding for finding in found}.values())


def _secured(settings: Settings) -> dict[str, SecuritySettings]:
    """The settings of each server that uses TLS."""
    broker = settings.broker
    secured = {each.name: broker.of_listener(each.name) for each in settings.listeners if each.uses_tls}
    for name, address in ((GRPC, settings.grpc), (HTTP, settings.http)):
        security = server_security(name, broker, settings.listeners)
        if address is not None and security.uses_tls:
            secured[name] = security.settings
    return secured


def _certificate(name: str, settings: SecuritySettings, now: datetime) -> SecurityFinding:
    try:
        path = tls_files(settings, name).certificate
        server_context(settings, name)
        expires = _expiry(path)
    except InvalidConfig as error:
        return SecurityFinding(f"certificate of {name}", "wrong", str(error), "a broker cannot start with it")
    days = (expires - now).days
    check, until = f"certificate {path}", f"{expires:%Y-%m-%d}"
    if expires <= now:
        return SecurityFinding(check, "wrong", f"expired on {until}", "clients refuse it; replace the file")
    if days < EXPIRES_SOON_DAYS:
        return SecurityFinding(check, "note", f"expires on {until}, in {days} days", "replace the file")
    return SecurityFinding(check, "fine", f"valid until {until}")


def _expiry(path: Path) -> datetime:
    """The end of the first certificate of a file, which is the one of the server."""
    try:
        return x509.load_pem_x509_certificates(path.read_bytes())[0].not_valid_after_utc
    except (OSError, ValueError) as error:
        raise InvalidConfig(f"the certificate in {path} cannot be read: {error}") from None


def _engines(settings: Settings) -> list[SecurityFinding]:
    return [
        SecurityFinding(
            f"TLS to {name}", "note", "the server's certificate is not checked", f"use {ENCRYPT_WITH[name]}"
        )
        for name in unverified_engines(settings)
    ]
