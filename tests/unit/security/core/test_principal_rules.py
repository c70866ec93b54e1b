"""The rules that turn subjects of certificates into user names."""

import pytest

from tidemill.model.errors import InvalidConfig, SaslAuthenticationFailed
from tidemill.security.core.principal_rules import SUBJECT_CHARS_MAX, apply_rules, parse_rules

ALICE = "CN=Alice,OU=Sales,O=Shop"


@pytest.mark.parametrize(
    ("rules", "name"),
    [
        ("", ALICE),
        ("DEFAULT", ALICE),
        ("RULE:^CN=(.*?),.*$/$1/", "Alice"),
        ("RULE:^CN=(.*?),.*$/$1/L", "alice"),
        ("RULE:^CN=(.*?),.*$/$1/U", "ALICE"),
        ("RULE:^CN=(.*?),OU=(.*?),.*$/$2-$1/", "Sales-Alice"),
        ("RULE:^CN=(Bob),.*$/$1/, DEFAULT", ALICE),
        ("RULE:^CN=(Bob),.*$/$1/,RULE:^CN=(Alice),.*$/$1@shop/", "Alice@shop"),
        ("RULE:^CN=(Alice),.*$/first/ RULE:.*/second/", "first"),
        (r"RULE:^CN=(.*?),.*$/a\/$1/", "a/Alice"),
        ("RULE:^CN=(Carol)?.*$/x$1/", "x"),
    ],
)
def test_the_first_rule_that_applies_makes_the_name(rules: str, name: str) -> None:
    assert apply_rules(parse_rules(rules), ALICE) == name


def test_a_pattern_matches_the_whole_subject() -> None:
    with pytest.raises(SaslAuthenticationFailed, match=r"^no rule of .* applies to 'CN=Alice"):
        apply_rules(parse_rules("RULE:CN=Alice/admin/"), ALICE)


def test_a_slash_in_a_pattern_is_escaped() -> None:
    assert apply_rules(parse_rules(r"RULE:^CN=a\/(b)$/$1/"), "CN=a/b") == "b"


@pytest.mark.parametrize(
    ("rules", "line"),
    [
        ("alice", "'alice' is neither DEFAULT nor RULE:pattern/replacement/"),
        ("DEFAULT, RULE:a/b", "'RULE:a/b' is neither"),
        ("RULE:(/x/", r"the pattern '\(' is not valid"),
        ("RULE:(a)/$2/", r"'\$2' uses \$2, which has no group"),
        ("RULE:a/$1/", r"uses \$1, which has no group"),
    ],
)
def test_a_wrong_rule_is_named(rules: str, line: str) -> None:
    with pytest.raises(InvalidConfig, match=line):
        parse_rules(rules)


@pytest.mark.parametrize("subject", ["", " ", "CN=a\nb", "CN=a\u202eb"])
def test_a_subject_that_could_forge_a_log_line_is_rejected(subject: str) -> None:
    with pytest.raises(SaslAuthenticationFailed, match="empty or has characters that are not printable"):
        apply_rules(parse_rules("DEFAULT"), subject)


def test_the_length_of_a_subject_is_limited() -> None:
    rules = parse_rules("DEFAULT")
    longest = "x" * SUBJECT_CHARS_MAX
    assert apply_rules(rules, longest) == longest
    with pytest.raises(SaslAuthenticationFailed, match="longer than 1024 characters"):
        apply_rules(rules, longest + "x")


def test_a_rule_that_makes_an_empty_name_is_rejected() -> None:
    with pytest.raises(SaslAuthenticationFailed, match="makes an empty user name"):
        apply_rules(parse_rules("RULE:^CN=(Bob)?.*$/$1/"), ALICE)
