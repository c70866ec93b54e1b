"""Topic patterns: as Python's re says where both understand, and never slow."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemill.groups.core.patterns import STATES_MAX, TopicPattern
from tidemill.model.errors import InvalidRegularExpression

atoms = st.sampled_from(["a", "b", "c", ".", "[ab]", "[^a]", "[a-b-]", r"\w", r"\d", r"\.", r"\-", "^", "$"])


def larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    repeats = st.sampled_from(["*", "+", "?", "{2}", "{0,2}", "{1,}", "{0}", "*?", "+?"])
    return st.one_of(
        st.builds("{}{}".format, inner, inner),
        st.builds("(?:{}|{})".format, inner, inner),
        st.builds("({}){}".format, inner, repeats),
    )


@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from(["", "(?i)"]),
    st.recursive(atoms, larger, max_leaves=6),
    st.lists(st.text("abcAB.-1", max_size=6), min_size=1, max_size=10),
)
def test_patterns_agree_with_re(flags: str, inner: str, names: list[str]) -> None:
    source = flags + inner
    pattern = TopicPattern(source)
    for name in names:
        assert pattern.matches(name) == bool(re.fullmatch(source, name)), name


@pytest.mark.parametrize(
    ("source", "yes", "no"),
    [
        ("^orders.*", ["orders", "orders-eu"], ["my-orders"]),
        ("orders", ["orders"], ["orders1", "xorders"]),
        ("(^orders.*)|(^payments$)", ["orders-eu", "payments"], ["payments2", "my-orders"]),
        ("a^b|a$b", [], ["ab", "a^b", "a$b"]),
        ("^(orders|payments)[-.][a-z]{2}$", ["orders-eu", "payments.us"], ["orders", "orders-e1"]),
        ("[]x]", ["]", "x"], ["y"]),
        (r"(?i)orders[-a-z]*\.x", ["orders.x", "ORDERS-EU.X", "Orders.x"], ["orderz.x", "orders-1.x"]),
        ("(?<what>a|b)(?P<more>c)", ["ac", "bc"], ["a", "cc"]),
        ("", [""], ["a"]),
        ("a{1,2}", ["a", "aa"], ["", "aaa"]),
        ("a{1}b{1,1}", ["ab"], ["", "aab", "abb"]),
        (r"\w+\s?\S", ["abc d", "ab"], ["a b c"]),
    ],
)
def test_examples(source: str, yes: list[str], no: list[str]) -> None:
    pattern = TopicPattern(source)
    assert [name for name in yes + no if pattern.matches(name)] == yes


@pytest.mark.parametrize(
    "source",
    [
        "(",
        ")",
        "a)",
        "[",
        "[b-a]",
        "[a",
        "*",
        "a**",
        "a{2",
        "a{2,1}",
        "a{x}",
        "(?=a)",
        "(?<=a)",
        "a(?i)b",
        "(?P<1>a)",
        r"\1",
        "\\",
        "a{1001}",
    ],
)
def test_an_unsupported_expression_is_rejected(source: str) -> None:
    with pytest.raises(InvalidRegularExpression):
        TopicPattern(source)


@pytest.mark.parametrize("source", ["(" * 1000 + ")" * 1000, "((a{100}){100}){100}", "(" * 60 + "a" + ")*" * 60])
def test_size_and_depth_have_a_limit(source: str) -> None:
    with pytest.raises(InvalidRegularExpression):
        TopicPattern(source)


@pytest.mark.parametrize("source", ["(a+)+$", "(a|a)*b", "((a*)*)*b", "(a?){200}a{200}"])
def test_no_pattern_keeps_the_broker_busy(source: str) -> None:
    # With backtracking these take longer than the universe; the test would not come back.
    pattern = TopicPattern(source)
    assert not pattern.matches("a" * 240 + "!")
    assert len(pattern._machine.tests) <= STATES_MAX


def test_a_repeat_has_the_limit_of_re2() -> None:
    """Kafka's brokers match with RE2, whose limit is 1000. Patterns of that size are too large here."""
    with pytest.raises(InvalidRegularExpression, match="the pattern is too large"):
        TopicPattern("a{1000}")
    for source in ("(?:){1001}a", "a{0,1001}", "a{1001,}", "a{3,2}"):
        with pytest.raises(InvalidRegularExpression, match="at most 1000, with the lower bound first"):
            TopicPattern(source)
