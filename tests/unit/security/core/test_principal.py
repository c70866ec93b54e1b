"""Principals and the setting `super.users`."""

import pytest

from tidemill.model.errors import InvalidConfig
from tidemill.security.core.principal import Principal, is_name, parse_principal, parse_super_users, user


def test_a_principal_is_read_as_it_is_written() -> None:
    assert str(user("alice")) == "User:alice"
    assert parse_principal(" User:alice ") == user("alice")
    assert parse_principal("Group:a:b") == Principal("Group", "a:b")


@pytest.mark.parametrize("text", ["", "alice", ":alice", "User:"])
def test_a_text_without_a_kind_and_a_name_is_rejected(text: str) -> None:
    with pytest.raises(InvalidConfig, match="is not a principal; write User:name"):
        parse_principal(text)


def test_super_users_are_separated_by_semicolons() -> None:
    assert parse_super_users("User:a; User:CN=b,O=c;") == {user("a"), user("CN=b,O=c")}
    assert parse_super_users("") == frozenset()


def test_a_name_is_printable_and_not_blank() -> None:
    assert is_name("alice smith")
    assert not any(map(is_name, ("", " ", "a\nb", "a\x00")))
