"""A CA and certificates for tests, made with openssl."""

import subprocess
from functools import cached_property
from pathlib import Path


class Authority:
    """A CA in a folder. `issue` makes a PEM file with a certificate chain and its key."""

    def __init__(self, folder: Path, name: str = "test-ca") -> None:
        self._folder, self._name = folder, name
        folder.mkdir(parents=True, exist_ok=True)

    @cached_property
    def path(self) -> str:
        """The CA's certificate."""
        key, certificate = self._folder / "ca.key", self._folder / "ca.pem"
        _openssl(
            "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
            "-keyout", str(key), "-out", str(certificate), "-subj", f"/CN={self._name}",
        )  # fmt: skip
        return str(certificate)

    def issue(self, subject: str, file: str, *, hosts: str = "DNS:localhost,IP:127.0.0.1", days: int = 2) -> str:
        """A certificate for a subject such as `/O=Shop/CN=alice`, with its key in the same file."""
        authority = self.path
        request, key = self._folder / f"{file}.csr", self._folder / f"{file}.key"
        certificate, extensions = self._folder / f"{file}.crt", self._folder / f"{file}.ext"
        extensions.write_text(f"subjectAltName={hosts}\n")
        _openssl(
            "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
            "-keyout", str(key), "-out", str(request), "-subj", subject,
        )  # fmt: skip
        _openssl(
            "x509", "-req", "-in", str(request), "-CA", authority, "-CAkey", str(self._folder / "ca.key"),
            "-CAcreateserial", "-days", str(days), "-extfile", str(extensions), "-out", str(certificate),
        )  # fmt: skip
        both = self._folder / f"{file}.pem"
        both.write_text(certificate.read_text() + key.read_text())
        return str(both)


def _openssl(*words: str) -> None:
    subprocess.run(["openssl", *words], check=True, capture_output=True)
