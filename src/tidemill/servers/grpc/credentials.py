"""TLS of the gRPC server and of its channels to other brokers, from the same PEM files as the Kafka listeners.

gRPC asks for the certificate at each handshake, so a replaced file counts at once. Files that cannot be loaded keep the
old certificate in use. gRPC can require client certificates, but not ask for them without requiring them.

This module loads `cryptography`, which takes 50 ms, so the server imports it only for TLS.
"""

from typing import Any

import grpc
import structlog

from tidemill.client.grpc_security import certificate_chain, private_key
from tidemill.model.errors import InvalidConfig
from tidemill.model.security_settings import SecuritySettings
from tidemill.security.tls import TlsFiles, server_context, tls_files
from tidemill.servers.grpc.certificate_names import CertificateNames

LISTENER = "gRPC"

log = structlog.get_logger("tidemill.tls")


class ServerCertificate:
    """The certificate of the gRPC server. Keep it while the server runs: gRPC calls `newest` from its own threads."""

    def __init__(self, settings: SecuritySettings) -> None:
        self._settings = settings
        self._requires_client_certificate = settings.ssl_client_auth == "required"
        self._files = tls_files(settings, LISTENER)
        self._versions = self._files.versions()
        self._first = self._load()
        if settings.ssl_client_auth == "requested":
            log.warning("grpc_client_certificates_not_requested", next_step="ssl.client.auth=required")
        if settings.ssl_enabled_protocols == ("TLSv1.3",) or settings.ssl_cipher_suites:
            log.warning("grpc_tls_not_restricted", reason="gRPC chooses the version, at least 1.2, and the ciphers")

    def names(self) -> CertificateNames | None:
        """The names of clients; None where they need no certificate."""
        return (
            CertificateNames(self._settings.ssl_principal_mapping_rules) if self._requires_client_certificate else None
        )

    def credentials(self) -> Any:
        """The credentials for `add_secure_port`."""
        return grpc.dynamic_ssl_server_credentials(
            self._first, self.newest, require_client_authentication=self._requires_client_certificate
        )

    def channel_credentials(self) -> Any:
        """The credentials of a channel to another broker, whose certificate must name its address."""
        authorities = self._files.authorities
        key, chain = key_pair(self._files) if self._requires_client_certificate else (None, None)
        return grpc.ssl_channel_credentials(None if authorities is None else authorities.read_bytes(), key, chain)

    def newest(self) -> Any:
        """The certificate if a file was replaced; None if the last one is still the newest."""
        versions = self._files.versions()
        if versions == self._versions or None in versions:
            return None
        self._versions = versions  # files that cannot be loaded are tried again when one changes again
        try:
            found = self._load()
        except InvalidConfig as error:
            log.error("certificate_reload_failed", listener=LISTENER, error=str(error))
            return None
        log.info("certificate_reloaded", listener=LISTENER)
        return found

    def _load(self) -> Any:
        server_context(self._settings, LISTENER)  # it checks that certificate and key belong together
        authorities = self._files.authorities if self._requires_client_certificate else None
        return grpc.ssl_server_certificate_configuration(
            [key_pair(self._files)], root_certificates=None if authorities is None else authorities.read_bytes()
        )


def key_pair(files: TlsFiles) -> tuple[bytes, bytes]:
    """The private key, without its password, and the certificate chain."""
    chain = files.certificate.read_bytes()
    key = chain if files.key is None else files.key.read_bytes()
    return private_key(key, files.password), certificate_chain(chain)
