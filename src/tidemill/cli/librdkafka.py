"""Translates the options of this package's client to librdkafka, because some commands use both clients."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidemill.client.kafka.options import ClientOptions, TlsOptions


def librdkafka_settings(options: "ClientOptions") -> dict[str, str]:
    """The librdkafka settings for the same security options."""
    tls, login = options.tls, options.credentials
    settings = {"security.protocol": f"{'SASL_' if login else ''}{'SSL' if tls else 'PLAINTEXT'}"}
    if login is not None:
        settings |= {
            "sasl.mechanism": login.mechanism,
            "sasl.username": login.username,
            "sasl.password": login.password,
        }
    return settings | (_tls(tls) if tls is not None else {})


def _tls(tls: "TlsOptions") -> dict[str, str]:
    given = {
        "ssl.ca.location": tls.ca_file,
        "ssl.ca.pem": tls.ca_pem,
        "ssl.certificate.location": tls.certificate_file,
        "ssl.certificate.pem": tls.certificate_pem,
        "ssl.key.location": tls.key_file or (tls.certificate_file if tls.key_pem is None else None),
        "ssl.key.pem": tls.key_pem,
        "ssl.key.password": tls.key_password,
        "ssl.endpoint.identification.algorithm": "https" if tls.check_name else "none",
        "enable.ssl.certificate.verification": str(tls.verify).lower(),
    }
    return {name: value for name, value in given.items() if value is not None}
