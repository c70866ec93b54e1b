"""Subjects as text, as RFC 2253 writes them."""

import pytest

from tidemill.security.core.distinguished_name import distinguished_name


def test_the_most_specific_part_comes_first() -> None:
    subject = [(("countryName", "NL"),), (("organizationName", "Shop"),), (("commonName", "alice"),)]
    assert distinguished_name(subject) == "CN=alice,O=Shop,C=NL"


def test_parts_that_belong_together_are_joined() -> None:
    assert distinguished_name([(("commonName", "alice"), ("userId", "7"))]) == "CN=alice+UID=7"


def test_an_unknown_kind_keeps_its_name() -> None:
    assert distinguished_name([(("emailAddress", "a@b"),)]) == "emailAddress=a@b"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a,b", r"a\,b"),
        ('a+"b"\\<c>;', r"a\+\"b\"\\\<c\>\;"),
        (" a", r"\ a"),
        ("#a", r"\#a"),
        ("a ", r"a\ "),
        (" ", r"\ "),
        ("a b#c", "a b#c"),
    ],
)
def test_a_value_cannot_look_like_another_part(value: str, text: str) -> None:
    assert distinguished_name([(("commonName", value),)]) == f"CN={text}"
