"""Loads the certificate of the gRPC server when TLS is on."""

from importlib import import_module
from typing import TYPE_CHECKING

from tidemill.model.security_settings import SecuritySettings

if TYPE_CHECKING:
    from tidemill.servers.grpc.credentials import ServerCertificate

CREDENTIALS_MODULE = "tidemill.servers.grpc.credentials"
"""It takes 50 ms to load, and only TLS needs it."""


def load_certificate(settings: SecuritySettings) -> "ServerCertificate":
    """The certificate of the server."""
    found: ServerCertificate = import_module(CREDENTIALS_MODULE).ServerCertificate(settings)
    return found
