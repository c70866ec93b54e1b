"""Builds the TLS context of a connection."""

import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tidemill.client.kafka.errors import InvalidClientOption
from tidemill.client.kafka.options import TlsOptions

OWNER_ONLY = 0o600
_NOT_YET_VALID, _EXPIRED, _OTHER_NAME, _OTHER_ADDRESS = 9, 10, 62, 64
"""OpenSSL's codes of a certificate that cannot be verified."""
_OWN_CERTIFICATE = "ssl.certificate.location and ssl.key.location"
_REFUSALS = {
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": f"requires a client certificate; set {_OWN_CERTIFICATE}",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": f"refuses the client certificate, which has expired; renew {_OWN_CERTIFICATE}",
    "TLSV1_ALERT_UNKNOWN_CA": f"does not trust the CA that signed the client certificate; check {_OWN_CERTIFICATE}",
}
"""What a broker says about the client's certificate, by the alert that it sends."""


def tls_context(tls: TlsOptions) -> ssl.SSLContext:
    """The context for these options. InvalidClientOption when their files or texts cannot be used."""
    try:
        context = ssl.create_default_context(cafile=tls.ca_file, cadata=tls.ca_pem)
        with _certificate(tls) as (certificate, key):
            if certificate is not None:
                context.load_cert_chain(certificate, key, lambda: tls.key_password or "")
    except (OSError, ValueError) as error:  # ssl raises ValueError for a text without a certificate
        reason = str(getattr(error, "strerror", None) or error).lower()
        raise InvalidClientOption(f"{_named(tls)} cannot be used: {reason}; they must be PEM") from None
    context.check_hostname = tls.check_name and tls.verify
    if not tls.verify:
        context.verify_mode = ssl.CERT_NONE
    return context


def verification_advice(error: ssl.SSLCertVerificationError, trust: str) -> str:
    """What to do about a broker's certificate that cannot be verified. `trust` names the setting of the CA."""
    if error.verify_code in {_EXPIRED, _NOT_YET_VALID}:
        return "replace the certificate of the broker, or correct the clock of this machine"
    if error.verify_code in {_OTHER_NAME, _OTHER_ADDRESS}:
        return "connect to a name that the certificate has, or give the broker one for this name"
    return f"set {trust} to the CA that signed it"


def certificate_refusal(error: OSError) -> str | None:
    """Why a broker has refused the client's certificate; None for another error."""
    return _REFUSALS.get(getattr(error, "reason", None) or "")


def _named(tls: TlsOptions) -> str:
    files = [name for name in (tls.ca_file, tls.certificate_file, tls.key_file) if name is not None]
    return f"the TLS files {', '.join(files)}" if files else "the PEM texts of the TLS options"


@contextmanager
def _certificate(tls: TlsOptions) -> Iterator[tuple[str | None, str | None]]:
    """The files of the client certificate and key. ssl reads only files, so texts are written to a temporary one."""
    if tls.certificate_pem is None:
        yield tls.certificate_file, tls.key_file
        return
    with tempfile.TemporaryDirectory(prefix="tidemill-tls-") as folder:
        together = Path(folder, "me.pem")
        together.touch(OWNER_ONLY)
        together.write_text("\n".join(filter(None, (tls.key_pem, tls.certificate_pem))), encoding="ascii")
        yield str(together), tls.key_file
