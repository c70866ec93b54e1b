"""Properties files: what Java writes is read back, and a wrong line is named."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.pipelines.errors import WrongOption
from tidemill.pipelines.spec.core.properties import parse_properties

JAVA = r"""
# as Kafka's tools are given it
! this too
security.protocol=SASL_SSL
sasl.mechanism : SCRAM-SHA-512
ssl.ca.location /etc/kafka/ca.pem
sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \
    username="ann" \
    password="a\\b=c";
name\ with\=signs = caf\u00e9\tau lait
empty=
"""


def test_files_are_read_as_java_reads_them() -> None:
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    assert parse_properties(JAVA) == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "ssl.ca.location": "/etc/kafka/ca.pem",
        "sasl.jaas.config": f'{module} required username="ann" password="a\\b=c";',
        "name with=signs": "café\tau lait",
        "empty": "",
    }


@pytest.mark.parametrize(("text", "line"), [("=x", 1), ("a=b\n\nlonely", 3), ("a=b\nlone\\\n  ly\n", 2)])
def test_a_line_that_says_nothing_is_named(text: str, line: int) -> None:
    with pytest.raises(WrongOption, match=f"line {line} is not name=value"):
        parse_properties(text)


PLAIN = st.text(st.characters(max_codepoint=0xFFFF))


@given(st.dictionaries(PLAIN.filter(bool), PLAIN))
def test_escaped_text_is_read_back(reported: dict[str, str]) -> None:
    def escaped(text: str) -> str:
        return "".join(f"\\u{ord(each):04x}" for each in text)

    assert (
        parse_properties("\n".join(f"{escaped(name)} = {escaped(value)}" for name, value in reported.items()))
        == reported
    )
