"""The subject of a certificate as text, as RFC 2253 writes it and as Kafka names principals of TLS clients."""

from collections.abc import Iterable, Sequence

_SHORT_NAMES = {
    "commonName": "CN",
    "countryName": "C",
    "domainComponent": "DC",
    "localityName": "L",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "stateOrProvinceName": "ST",
    "streetAddress": "STREET",
    "userId": "UID",
}
_SPECIAL = frozenset(',+"\\<>;')


def distinguished_name(subject: Iterable[Sequence[tuple[str, str]]]) -> str:
    """The name of a subject as `ssl.SSLObject.getpeercert()` returns it: the most specific part comes first."""
    parts = ["+".join(_pair(name, value) for name, value in together) for together in subject]
    return ",".join(reversed(parts))


def _pair(name: str, value: str) -> str:
    return f"{_SHORT_NAMES.get(name, name)}={_escaped(value)}"


def _escaped(value: str) -> str:
    text = "".join(f"\\{char}" if char in _SPECIAL else char for char in value)
    if text.startswith((" ", "#")):
        text = f"\\{text}"
    if value.endswith(" ") and len(value) > 1:
        text = f"{text[:-1]}\\ "
    return text
