"""The options of one client become options of the other, in its own spelling."""

from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from tests.support.etcd import Certificates

from tidemill.cli.librdkafka import librdkafka_settings
from tidemill.client.kafka.options import parse_options

SERVERS = {"bootstrap.servers": "127.0.0.1:1"}
JAAS = 'x.ScramLoginModule required username="ann" password="secret";'


@pytest.mark.parametrize(
    ("given", "settings"),
    [
        ({}, {"security.protocol": "PLAINTEXT"}),
        (
            {"security.protocol": "sasl_plaintext", "sasl.mechanism": "SCRAM-SHA-256", "sasl.jaas.config": JAAS},
            {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "SCRAM-SHA-256",
                "sasl.username": "ann",
                "sasl.password": "secret",
            },
        ),
        (
            {"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": ""},
            {
                "security.protocol": "SSL",
                "ssl.endpoint.identification.algorithm": "none",
                "enable.ssl.certificate.verification": "true",
            },
        ),
    ],
)
def test_the_same_in_other_words(given: dict[str, str], settings: dict[str, str]) -> None:
    assert librdkafka_settings(parse_options({**SERVERS, **given})) == settings


def test_librdkafka_takes_files_and_texts(tmp_path: Path) -> None:
    made = Certificates(tmp_path)
    both = tmp_path / "both.pem"
    both.write_text(Path(made.cert).read_text() + Path(made.key).read_text())
    for given in (
        {"ssl.truststore.location": made.ca, "ssl.truststore.type": "PEM", "ssl.keystore.location": both},
        {"ssl.ca.location": made.ca, "ssl.certificate.location": made.cert, "ssl.key.location": made.key},
        {
            "ssl.ca.pem": Path(made.ca).read_text(),
            "ssl.keystore.certificate.chain": Path(made.cert).read_text(),
            "ssl.keystore.key": Path(made.key).read_text(),
        },
    ):
        texts = {name: str(value) for name, value in given.items()}
        settings = librdkafka_settings(parse_options({**SERVERS, "security.protocol": "SSL", **texts}))
        AdminClient({**SERVERS, **settings, "log_level": 0})  # it reads them now, and refuses what it cannot use
