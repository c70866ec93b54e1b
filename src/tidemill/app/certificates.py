"""A small certificate authority for development: it signs certificates of brokers and of clients.

Keys are EC P-256. A private key is never readable by other users of the machine, not even while it is written.
No file is overwritten unless the caller says so, and the key of the authority never is.
"""

import os
import re
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from secrets import token_hex

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from tidemill.model.errors import InvalidConfig

AUTHORITY = "ca"
AUTHORITY_NAME = "Tidemill development CA"
AUTHORITY_DAYS = 3650
CLOCK_SKEW = timedelta(minutes=5)
"""A certificate is valid from this time before its creation, for machines whose clock is behind."""
COMMON_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._@+-]{0,63}", re.ASCII)
"""X.509 limits a common name to 64 characters. It is also the name of a file."""
HOST_CHARS_MAX = 253
HOST = re.compile(
    r"(\*\.)?([A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?)(\.[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?)*"
)
PRIVATE_MODE, PUBLIC_MODE, FOLDER_MODE = 0o600, 0o644, 0o700


@dataclass(frozen=True, slots=True)
class Authority:
    """A certificate authority: its certificate and its private key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey


@dataclass(frozen=True, slots=True)
class CreatedCertificate:
    """The files that were written, and what the certificate says."""

    path: Path
    authority_path: Path
    authority_created: bool
    expires: datetime


def create_certificate(
    folder: Path, name: str, hosts: tuple[str, ...], *, days: int, now: datetime, overwrite: bool = False
) -> CreatedCertificate:
    """Write `NAME.pem` with a certificate, its chain and its key; make the authority first if the folder has none.

    With hosts it is the certificate of a broker, which also logs in to other brokers with it. Without hosts it is the
    certificate of a client.
    """
    now = now.replace(microsecond=0)  # X.509 has seconds
    _check_name(name)
    names = [_host(host) for host in hosts]
    path = folder / f"{name}.pem"
    if path.exists() and not overwrite:
        raise InvalidConfig(f"{path} exists; replace it with --force, or use another name")
    folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
    authority, created = _authority(folder, days, now)
    expires = now + timedelta(days=days)
    limit = authority.certificate.not_valid_after_utc
    if expires > limit:
        left = max(0, (limit - now).days)
        raise InvalidConfig(f"the CA in {folder} expires in {left} days, before the new certificate; use fewer --days")
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = _sign(name, names, key, authority, now, expires)
    chain = _pem(certificate) + _pem(authority.certificate) + _key_pem(key)
    _write(path, chain, PRIVATE_MODE, overwrite=overwrite)
    return CreatedCertificate(path, folder / f"{AUTHORITY}.pem", created, certificate.not_valid_after_utc)


def _check_name(name: str) -> None:
    if not COMMON_NAME.fullmatch(name):
        raise InvalidConfig(
            f"{name[:80]!r} cannot be the name of a certificate; use up to 64 letters, digits and . _ - @ +"
        )
    if name.lower() == AUTHORITY:
        raise InvalidConfig(f"{name!r} is the name of the certificate authority; use another name")


def _host(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(text.removeprefix("[").removesuffix("]")))
    except ValueError:
        if len(text) > HOST_CHARS_MAX or not HOST.fullmatch(text):
            raise InvalidConfig(f"{text[:80]!r} is not a host name or an IP address") from None
        return x509.DNSName(text.lower())


def _authority(folder: Path, days: int, now: datetime) -> tuple[Authority, bool]:
    """The folder's authority, and whether it was made now."""
    certificate_path, key_path = folder / f"{AUTHORITY}.pem", folder / f"{AUTHORITY}.key"
    if not certificate_path.exists() and not key_path.exists():
        authority = _new_authority(max(AUTHORITY_DAYS, days), now)
        _write(key_path, _key_pem(authority.key), PRIVATE_MODE, overwrite=False)
        _write(certificate_path, _pem(authority.certificate), PUBLIC_MODE, overwrite=False)
        return authority, True
    for path in (certificate_path, key_path):
        if not path.exists():
            raise InvalidConfig(f"{path} is missing, but the other file of the CA exists; use another --dir")
    return _read_authority(certificate_path, key_path), False


def _read_authority(certificate_path: Path, key_path: Path) -> Authority:
    try:
        certificate = x509.load_pem_x509_certificate(certificate_path.read_bytes())
        key = serialization.load_pem_private_key(key_path.read_bytes(), password=None)
    except (ValueError, TypeError):
        raise InvalidConfig(f"{certificate_path} and {key_path} are not a CA that this command has made") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or certificate.public_key() != key.public_key():
        raise InvalidConfig(f"{key_path} is not the key of {certificate_path}")
    return Authority(certificate, key)


def _new_authority(days: int, now: datetime) -> Authority:
    key = ec.generate_private_key(ec.SECP256R1())
    # The random part keeps two authorities apart in a trust store: it would find issuers by their name.
    subject = _subject(f"{AUTHORITY_NAME} {token_hex(4)}")
    builder = (
        _builder(subject, subject, key, now, now + timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
    )
    return Authority(builder.sign(key, hashes.SHA256()), key)


def _sign(
    name: str,
    hosts: list[x509.GeneralName],
    key: ec.EllipticCurvePrivateKey,
    authority: Authority,
    now: datetime,
    expires: datetime,
) -> x509.Certificate:
    purposes = [ExtendedKeyUsageOID.SERVER_AUTH] if hosts else []
    issuer = authority.key.public_key()
    builder = (
        _builder(_subject(name), authority.certificate.subject, key, now, expires)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([*purposes, ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer), critical=False)
    )
    if hosts:
        builder = builder.add_extension(x509.SubjectAlternativeName(hosts), critical=False)
    return builder.sign(authority.key, hashes.SHA256())


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, now: datetime, expires: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(expires)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _subject(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """The key as PKCS#8, the only form that Java reads from a PEM file."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _write(path: Path, data: bytes, mode: int, *, overwrite: bool) -> None:
    """Write a file that has its mode from the start; a reader finds the whole file or none."""
    fresh = path.with_name(f".{path.name}.{token_hex(4)}")
    handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        if overwrite:
            fresh.replace(path)
        else:
            path.hardlink_to(fresh)  # fails when another process has made the file
    except FileExistsError:
        raise InvalidConfig(f"{path} was made by another command at the same time; try again") from None
    finally:
        with suppress(OSError):
            fresh.unlink(missing_ok=True)
