"""TLS of servers and between brokers: contexts made of PEM files, loaded again when the files change.

A `ReloadingContext` stands for the newest context, so a listener keeps its socket while certificates change. Open
connections keep the certificate that they began with. Files that cannot be loaded keep the old certificate in use.

A client whose certificate is refused gets the alert that says so. asyncio and uvloop drop it: they close the socket as
soon as a handshake fails, and the client sees a connection that ended for no reason and tries for ever.
"""

import re
import ssl
import time
from pathlib import Path
from typing import Any, NamedTuple

import structlog

from tidemill.model.errors import InvalidConfig
from tidemill.model.listeners import HTTP
from tidemill.model.security_settings import SecuritySettings
from tidemill.security.core.event_limiter import EventLimiter

HANDSHAKE_TIMEOUT_S = 10.0
SHUTDOWN_TIMEOUT_S = 1.0
"""How long a connection that the broker ends waits for the client's end of TLS. The Java client may not send one: it
overlooks the broker's end behind a response, and waits for the end of the socket."""
RELOAD_CHECK_S = 5.0
_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)
_NOT_TLS = frozenset({"HTTP_REQUEST", "HTTPS_PROXY_REQUEST", "WRONG_VERSION_NUMBER"})
"""OpenSSL's reasons for a client that does not speak TLS; an alert would mean nothing to it."""
_HTTPS_HINT = b"this server uses TLS; write https:// in front of its address\n"
_PLAIN_HTTP_ANSWER = (
    b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain; charset=utf-8\r\nconnection: close\r\n"
    b"content-length: %d\r\n\r\n%s" % (len(_HTTPS_HINT), _HTTPS_HINT)
)
"""For a browser whose address begins with http://."""
_VERIFY_MODES = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}

log = structlog.get_logger("tidemill.tls")


class TlsFiles(NamedTuple):
    """The PEM files of one listener. `key` is None when the certificate's file has the key too."""

    certificate: Path
    key: Path | None
    password: str | None
    authorities: Path | None

    def versions(self) -> tuple[tuple[int, int] | None, ...]:
        """What changes when a file is replaced: time and size of each; None for a file that is missing."""
        return tuple(_version(path) for path in (self.certificate, self.key, self.authorities) if path is not None)


def _version(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


def tls_files(settings: SecuritySettings, listener: str) -> TlsFiles:
    """The files of a listener; InvalidConfig names the setting that is missing."""
    certificate = settings.ssl_keystore_location or settings.ssl_certificate_location
    if not certificate:
        raise InvalidConfig(
            f"listener {listener} uses TLS and has no certificate; set ssl.keystore.location, for development with: "
            "tidemill cert create"
        )
    if settings.ssl_client_auth != "none" and not settings.ssl_truststore_location:
        raise InvalidConfig(
            f"ssl.client.auth={settings.ssl_client_auth} of listener {listener} needs ssl.truststore.location, the CA "
            "that signs the certificates of clients"
        )
    return TlsFiles(
        Path(certificate),
        Path(settings.ssl_key_location) if settings.ssl_key_location else None,
        settings.ssl_key_password or None,
        Path(settings.ssl_truststore_location) if settings.ssl_truststore_location else None,
    )


def server_context(settings: SecuritySettings, listener: str) -> ssl.SSLContext:
    """A context for the server's side of connections."""
    files = tls_files(settings, listener)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.sslobject_class = AlertingHandshake
    _restrict(context, settings)
    _load_chain(context, files, listener)
    context.verify_mode = _VERIFY_MODES[settings.ssl_client_auth]
    if files.authorities is not None:
        _load_authorities(context, files.authorities)
    return context


def peer_context(settings: SecuritySettings, listener: str, *, trusts_itself: bool = False) -> ssl.SSLContext:
    """A context for connections to other brokers: the CA of `ssl.truststore.location`, or the system's CAs.

    With `trusts_itself`, also for connections of this broker to itself: without a truststore, its own certificate is
    trusted as it is. Only this broker has its key, and one broker with TLS needs no truststore otherwise.

    The certificate must name the host. The CA often signs clients too, so one of them on the way could pretend to be a
    broker otherwise, and pass on the proof that the broker knows the cluster's secret.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = settings.ssl_endpoint_identification_algorithm == "https"
    _restrict(context, settings)
    if settings.ssl_truststore_location:
        _load_authorities(context, Path(settings.ssl_truststore_location))
    else:
        context.load_default_certs()
        if trusts_itself:
            _trust_certificate(context, tls_files(settings, listener).certificate)
    if settings.ssl_keystore_location or settings.ssl_certificate_location:
        _load_chain(context, tls_files(settings, listener), listener)
    return context


def _trust_certificate(context: ssl.SSLContext, path: Path) -> None:
    """Trust the first certificate of a file, but none that it or its issuers sign."""
    try:
        text = path.read_text("ascii", errors="replace")
    except OSError as error:
        raise InvalidConfig(f"the certificate in {path} cannot be read: {error.strerror}") from None
    found = _CERTIFICATE.search(text)
    if found is not None:
        context.load_verify_locations(cadata=found[0])
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN


def _restrict(context: ssl.SSLContext, settings: SecuritySettings) -> None:
    only_13 = settings.ssl_enabled_protocols == ("TLSv1.3",)
    context.minimum_version = ssl.TLSVersion.TLSv1_3 if only_13 else ssl.TLSVersion.TLSv1_2
    if "TLSv1.3" not in settings.ssl_enabled_protocols:
        context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION | ssl.OP_CIPHER_SERVER_PREFERENCE
    if settings.ssl_cipher_suites:
        try:
            context.set_ciphers(":".join(settings.ssl_cipher_suites))
        except ssl.SSLError:
            raise InvalidConfig(
                f"ssl.cipher.suites={','.join(settings.ssl_cipher_suites)[:80]} has no suite that OpenSSL knows; "
                "see: openssl ciphers"
            ) from None


def _load_chain(context: ssl.SSLContext, files: TlsFiles, listener: str) -> None:
    try:
        # An empty password: without one, OpenSSL would ask for it on the terminal.
        context.load_cert_chain(files.certificate, files.key, files.password or "")
    except OSError as error:
        raise InvalidConfig(
            f"the certificate of listener {listener} cannot be loaded from {files.certificate}: "
            f"{error.strerror or error}; check ssl.keystore.location, ssl.key.location and ssl.key.password"
        ) from None


def _load_authorities(context: ssl.SSLContext, path: Path) -> None:
    try:
        context.load_verify_locations(path)
    except OSError as error:
        raise InvalidConfig(
            f"the CA certificates cannot be loaded from {path}: {error.strerror or error}; "
            "check ssl.truststore.location"
        ) from None


class AlertingHandshake(ssl.SSLObject):
    """The broker's side of a connection; a handshake that fails sends its alert before the connection is closed.

    The event loop sends what a handshake has written only if the handshake goes on. So the failure is first reported as
    "more bytes are needed". The client closes on the alert, and the next call reports the failure itself. A client that
    does nothing is closed by the time limit of handshakes. A browser that speaks HTTP without TLS gets a sentence.
    """

    outgoing: ssl.MemoryBIO
    failures: EventLimiter
    listener = ""
    _failure: ssl.SSLError | None = None

    def do_handshake(self) -> None:
        """Take the next step of the handshake."""
        if self._failure is not None:
            raise self._failure
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError as error:
            self._log(str(error.reason))
            if error.reason == "HTTP_REQUEST" and self.listener == HTTP:
                self.outgoing.write(_PLAIN_HTTP_ANSWER)
            elif error.reason in _NOT_TLS or not self.outgoing.pending:
                raise
            self._failure = error
            raise ssl.SSLWantReadError(ssl.SSL_ERROR_WANT_READ, "the answer must be sent") from error

    def _log(self, reason: str) -> None:
        counts = self.failures.admit((self.listener, reason))
        if counts is not None:
            log.info("tls_handshake_failed", listener=self.listener, reason=reason, **counts)


class ReloadingContext(ssl.SSLContext):
    """A context for `create_server` that always uses the newest files."""

    _settings: SecuritySettings
    _listener: str
    _current: ssl.SSLContext
    _failures: EventLimiter
    """Which failed handshakes are logged: clients can repeat them without end."""
    _versions: tuple[tuple[int, int] | None, ...]

    @classmethod
    def open(cls, settings: SecuritySettings, listener: str) -> "ReloadingContext":
        """Load the files; InvalidConfig when that fails."""
        context = cls(ssl.PROTOCOL_TLS_SERVER)
        context._settings, context._listener = settings, listener
        context._failures = EventLimiter(time.monotonic)
        context._versions = tls_files(settings, listener).versions()
        context._current = server_context(settings, listener)
        return context

    def wrap_bio(
        self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, *args: Any, **options: Any
    ) -> AlertingHandshake:
        """Begin a connection with the newest files."""
        made = self._current.wrap_bio(incoming, outgoing, *args, **options)
        if not isinstance(made, AlertingHandshake):
            raise TypeError(f"the context of listener {self._listener} makes {type(made).__name__}")
        made.outgoing, made.listener, made.failures = outgoing, self._listener, self._failures
        return made

    def reload_if_changed(self) -> bool:
        """Load the files again if one of them was replaced. Files that cannot be loaded change nothing."""
        versions = tls_files(self._settings, self._listener).versions()
        if versions == self._versions or None in versions:
            return False
        try:
            self._current = server_context(self._settings, self._listener)
        except InvalidConfig as error:
            log.error("certificate_reload_failed", listener=self._listener, error=str(error))
            self._versions = versions  # tried again when a file changes again
            return False
        self._versions = versions
        log.info("certificate_reloaded", listener=self._listener)
        return True
