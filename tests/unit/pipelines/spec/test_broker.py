"""What a command line and its files say about a broker."""

import pytest

from tidemill.client.kafka.options import LOGIN_NAMES
from tidemill.pipelines.errors import WrongOption
from tidemill.pipelines.spec.core.broker import KafkaBroker, parse_client


def parsed(servers: str | None, *given: str, **files: str) -> KafkaBroker:
    return parse_client(
        servers,
        given,
        {"PASSWORD": "secret"},
        default="127.0.0.1:9092",
        understood=LOGIN_NAMES,
        read=files.__getitem__,
    )


def test_the_later_counts_and_the_command_line_names_the_broker() -> None:
    first = "bootstrap.servers=a:1\ngroup.id=g\nclient.id=one\nretry.backoff.ms=5\n"
    assert parsed(None) == KafkaBroker("127.0.0.1:9092", {})
    assert parsed(None, "first", first=first) == KafkaBroker("a:1", {"client.id": "one", "retry.backoff.ms": "5"})
    assert parsed("b:2", "first", "client.id=two", first=first).options == {
        "bootstrap.servers": "b:2",
        "client.id": "two",
        "retry.backoff.ms": "5",
    }
    assert parsed(None, "client.id=two", "first", first=first).client["client.id"] == "one"
    assert parsed(None, "first", first="client.id=${PASSWORD}").client["client.id"] == "secret"


def test_a_setting_without_a_name_is_refused() -> None:
    with pytest.raises(WrongOption, match="--client =x has no name"):
        parsed(None, "=x")


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ("sasl.usrname=ann", r"--client sasl.usrname is not a setting of this command; did you mean sasl.username\?"),
        ("linger.ms=5", "--client linger.ms is not a setting of this command; it takes client.id"),
        ("sasl.kerberos.service.name=kafka", "Kerberos is not supported"),
    ],
)
def test_a_name_that_means_nothing_is_refused_where_it_was_written_by_hand(given: str, line: str) -> None:
    with pytest.raises(WrongOption, match=line):
        parsed(None, given)


def test_a_file_may_have_what_others_understand() -> None:
    assert parsed(None, "shared", shared="linger.ms=5\nclient.id=one").client["client.id"] == "one"
