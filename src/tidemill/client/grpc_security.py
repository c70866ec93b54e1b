"""TLS and login of the gRPC clients, from client settings in Kafka's spelling: one file of them serves both servers."""

import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import grpc

from tidemill.client.grpc_login import ClientLogin, FetchToken, PasswordLogin, TokenLogin, token_from
from tidemill.client.kafka.errors import InvalidClientOption
from tidemill.client.kafka.options import LOGIN_NAMES, PROTOCOLS, TlsOptions, login_names, tls_options
from tidemill.model.addresses import parse_address
from tidemill.model.listeners import is_local

TOKEN_FILE = "sasl.oauthbearer.token.endpoint.url"  # noqa: S105 -- the name of a setting
GRPC_CLIENT_NAMES = LOGIN_NAMES | {TOKEN_FILE}
"""The settings that a gRPC client understands."""
OAUTHBEARER = "OAUTHBEARER"
_KEY = re.compile(rb"-----BEGIN (?:\w+ )*PRIVATE KEY-----.*?-----END (?:\w+ )*PRIVATE KEY-----\s*", re.DOTALL)
_CERTIFICATES = re.compile(rb"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----\s*", re.DOTALL)


@dataclass(frozen=True, slots=True)
class GrpcSecurity:
    """TLS and login of one client."""

    tls: TlsOptions | None = None
    login: ClientLogin | None = None
    is_password_protected: bool = field(default=False, repr=False)
    """Whether the password must not be sent without TLS: with SCRAM, Kafka clients never send it."""

    def check(self, address: str) -> None:
        """Refuse to send a password to another machine without TLS, unless sasl.mechanism=PLAIN asks for it."""
        if self.is_password_protected and self.tls is None and not is_local(parse_address(address).host):
            raise InvalidClientOption(
                f"gRPC would send the password to {address} without encryption; use security.protocol=SASL_SSL, or "
                "accept it with sasl.mechanism=PLAIN"
            )

    def credentials(self) -> Any:
        """The credentials of a TLS channel, from the files as they are now; None without TLS."""
        if self.tls is None:
            return None
        tls = self.tls
        try:
            chain = _pem(tls.certificate_pem, tls.certificate_file)
            key = None if chain is None else private_key(_pem(tls.key_pem, tls.key_file) or chain, tls.key_password)
            authorities = _pem(tls.ca_pem, tls.ca_file) or _system_authorities()
        except OSError as error:
            raise InvalidClientOption(
                f"the TLS file {error.filename} cannot be read: {(error.strerror or str(error)).lower()}"
            ) from None
        return grpc.ssl_channel_credentials(authorities, key, None if chain is None else certificate_chain(chain))


def parse_grpc_security(options: Mapping[str, str] | None, token: FetchToken | None = None) -> GrpcSecurity:
    """The security of a client. InvalidClientOption names the setting that is wrong."""
    given = options or {}
    for name, value in given.items():
        if not isinstance(value, str):
            raise InvalidClientOption(f"{name} must be a str, not {type(value).__name__}")
    protocol = given.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in PROTOCOLS:
        raise InvalidClientOption(f"security.protocol: {protocol} is not one of {', '.join(PROTOCOLS)}")
    if token is not None and not protocol.startswith("SASL_"):
        raise InvalidClientOption(f"a token is given, but security.protocol is {protocol}; set it to SASL_SSL")
    tls = _checked(tls_options(given)) if protocol.endswith("SSL") else None
    if not protocol.startswith("SASL_"):
        return GrpcSecurity(tls)
    mechanism = given.get("sasl.mechanism", given.get("sasl.mechanisms", "")).upper()
    if token is not None:
        return GrpcSecurity(tls, TokenLogin(token))
    if mechanism == OAUTHBEARER:
        return GrpcSecurity(tls, TokenLogin(token_from(_token_file(given))))
    name, password = login_names(given)
    return GrpcSecurity(tls, PasswordLogin(name, password), is_password_protected=mechanism != "PLAIN")


def _checked(tls: TlsOptions) -> TlsOptions:
    if not tls.verify:
        raise InvalidClientOption(
            "enable.ssl.certificate.verification: gRPC always verifies certificates; set ssl.ca.location to the CA"
        )
    if not tls.check_name:
        raise InvalidClientOption(
            "ssl.endpoint.identification.algorithm: gRPC always checks the name in the certificate; leave it at https"
        )
    return tls


def _token_file(options: Mapping[str, str]) -> str:
    url = options.get(TOKEN_FILE, "")
    parts = urlsplit(url)
    if parts.scheme != "file" or parts.netloc or not parts.path:
        raise InvalidClientOption(
            f"{TOKEN_FILE} must be file:///path of a file with the token, or give token=, a function that returns it"
        )
    return unquote(parts.path)


def _pem(text: str | None, file: str | None) -> bytes | None:
    if text is not None:
        return text.encode()
    return None if file is None else Path(file).expanduser().read_bytes()


def _system_authorities() -> bytes | None:
    """The CAs of the system, which the Kafka clients use; None: those that gRPC brings along."""
    file = ssl.get_default_verify_paths().cafile
    return None if file is None else Path(file).read_bytes()


def certificate_chain(pem: bytes) -> bytes:
    """The certificates of a file that may have a key, too."""
    found = b"".join(_CERTIFICATES.findall(pem))
    if not found:
        raise InvalidClientOption("the certificate of the client cannot be used: it must be PEM")
    return found


def private_key(pem: bytes, password: str | None) -> bytes:
    """The private key of a file that may have certificates, too; without its password."""
    found = _KEY.search(pem)
    if found is None:
        raise InvalidClientOption("the private key of the client cannot be used: it must be PEM")
    if password is None:
        return found[0]
    # The library takes 50 ms to load.
    plain: bytes = import_module("tidemill.client.encrypted_key").plain_key(found[0], password)
    return plain
