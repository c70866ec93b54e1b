"""Certificates that no honest CA issues: any subject, any time, any use, any signer."""

import datetime as dt
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

OIDS = {
    "CN": NameOID.COMMON_NAME,
    "O": NameOID.ORGANIZATION_NAME,
    "OU": NameOID.ORGANIZATIONAL_UNIT_NAME,
    "UID": NameOID.USER_ID,
    "E": NameOID.EMAIL_ADDRESS,
    "X": x509.ObjectIdentifier("1.3.6.1.4.1.99999.1"),
}
DAY = dt.timedelta(days=1)

Part: TypeAlias = tuple[str, str]
Subject: TypeAlias = Sequence[Sequence[Part]]
"""From the general to the specific, as certificates have it; most parts have one value."""


@dataclass
class Signer:
    """A CA, or a certificate that acts as one."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @classmethod
    def of(cls, certificate: Path, key: Path) -> "Signer":
        """The signer of PEM files."""
        loaded = load_pem_private_key(key.read_bytes(), None)
        assert isinstance(loaded, ec.EllipticCurvePrivateKey)
        return cls(x509.load_pem_x509_certificate(certificate.read_bytes()), loaded)


def subject_name(subject: Subject) -> x509.Name:
    """A name without the checks of the library."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about names that are too long
        return x509.Name(
            [
                x509.RelativeDistinguishedName(
                    [x509.NameAttribute(OIDS[kind], value, _validate=False) for kind, value in part]
                )
                for part in subject
            ]
        )


def parts(*each: Part) -> Subject:
    """A subject whose parts have one value each."""
    return [[part] for part in each]


def issue(
    file: Path,
    subject: Subject,
    signer: Signer | None = None,
    *,
    starts: dt.timedelta = -DAY,
    ends: dt.timedelta = DAY,
    for_servers: bool = False,
    chain: Sequence[x509.Certificate] = (),
) -> Signer:
    """Write a certificate and its key to a file; without a signer it is signed by itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    now = dt.datetime.now(dt.UTC)
    name = subject_name(subject)
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name if signer is None else signer.certificate.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + starts)
        .not_valid_after(now + ends)
    )
    if for_servers:
        builder = builder.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=True)
    certificate = builder.sign(key if signer is None else signer.key, hashes.SHA256())
    pem = b"".join(each.public_bytes(Encoding.PEM) for each in (certificate, *chain))
    file.write_bytes(pem + key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return Signer(certificate, key)
