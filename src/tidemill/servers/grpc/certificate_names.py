"""The principal of a client certificate: its subject, mapped by `ssl.principal.mapping.rules` as on Kafka listeners."""

from typing import Any

import structlog
from cryptography import x509
from cryptography.x509.oid import NameOID

from tidemill.model.errors import SaslAuthenticationFailed
from tidemill.security.core.distinguished_name import distinguished_name
from tidemill.security.core.principal import Principal, user
from tidemill.security.core.principal_rules import apply_rules, parse_rules

PEM_KEY = "x509_pem_cert"
REMEMBERED_MAX = 1_000
_NAMES = {
    NameOID.BUSINESS_CATEGORY: "businessCategory",
    NameOID.COMMON_NAME: "commonName",
    NameOID.COUNTRY_NAME: "countryName",
    NameOID.DN_QUALIFIER: "dnQualifier",
    NameOID.DOMAIN_COMPONENT: "domainComponent",
    NameOID.EMAIL_ADDRESS: "emailAddress",
    NameOID.GENERATION_QUALIFIER: "generationQualifier",
    NameOID.GIVEN_NAME: "givenName",
    NameOID.INITIALS: "initials",
    NameOID.JURISDICTION_COUNTRY_NAME: "jurisdictionCountryName",
    NameOID.JURISDICTION_LOCALITY_NAME: "jurisdictionLocalityName",
    NameOID.JURISDICTION_STATE_OR_PROVINCE_NAME: "jurisdictionStateOrProvinceName",
    NameOID.LOCALITY_NAME: "localityName",
    NameOID.ORGANIZATIONAL_UNIT_NAME: "organizationalUnitName",
    NameOID.ORGANIZATION_IDENTIFIER: "organizationIdentifier",
    NameOID.ORGANIZATION_NAME: "organizationName",
    NameOID.POSTAL_ADDRESS: "postalAddress",
    NameOID.POSTAL_CODE: "postalCode",
    NameOID.PSEUDONYM: "pseudonym",
    NameOID.SERIAL_NUMBER: "serialNumber",
    NameOID.STATE_OR_PROVINCE_NAME: "stateOrProvinceName",
    NameOID.STREET_ADDRESS: "streetAddress",
    NameOID.SURNAME: "surname",
    NameOID.TITLE: "title",
    NameOID.UNSTRUCTURED_NAME: "unstructuredName",
    NameOID.USER_ID: "userId",
    NameOID.X500_UNIQUE_IDENTIFIER: "x500UniqueIdentifier",
}
"""OpenSSL's names, which `distinguished_name` shortens."""

log = structlog.get_logger("tidemill.grpc")


class CertificateNames:
    """The principals of certificates that gRPC has verified."""

    def __init__(self, rules: str) -> None:
        self._rules = parse_rules(rules)
        self._remembered: dict[bytes, Principal] = {}

    def principal(self, context: Any) -> Principal:
        """The principal of a call; SaslAuthenticationFailed when its certificate has no name that a rule maps."""
        certificates = context.auth_context().get(PEM_KEY)
        if not certificates:
            raise SaslAuthenticationFailed("the connection has no client certificate, which this server requires")
        pem = certificates[0]
        known = self._remembered.get(pem)
        if known is None:
            subject = subject_of(pem)
            try:
                known = user(apply_rules(self._rules, subject))
            except SaslAuthenticationFailed as error:
                log.warning("client_certificate_refused", subject=subject, reason=str(error))
                raise
            if len(self._remembered) >= REMEMBERED_MAX:
                self._remembered.clear()
            self._remembered[pem] = known
        return known


def subject_of(pem: bytes) -> str:
    """The subject of a certificate, as `ssl.SSLObject.getpeercert()` and `distinguished_name` write it."""
    subject = x509.load_pem_x509_certificate(pem).subject
    return distinguished_name(
        [[(_NAMES.get(each.oid, each.oid.dotted_string), str(each.value)) for each in part] for part in subject.rdns]
    )
