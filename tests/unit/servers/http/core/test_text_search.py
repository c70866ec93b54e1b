"""Searches agree with Python's own engine, take linear time, and keep a bounded table."""

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.model.errors import InvalidRegularExpression
from tidemill.servers.http.core import text_search
from tidemill.servers.http.core.text_search import MOVES_MAX, TEXT_CHARS_MAX, TextSearch

atoms = st.sampled_from(["a", "b", ".", "[ab]", "[^a]", "\\d", "^", "$", "(?:ab)"])
repeats = st.sampled_from(["", "*", "+", "?", "{2}", "{1,3}"])
pieces = st.tuples(atoms, repeats).map(lambda pair: pair[0] + ("" if pair[0] in "^$" else pair[1]))
patterns = st.recursive(
    st.lists(pieces, max_size=4).map("".join),
    lambda inner: st.lists(inner, min_size=2, max_size=3).map(lambda parts: f"(?:{'|'.join(parts)})"),
    max_leaves=4,
)


@given(patterns, st.text("ab1\n", max_size=12))
def test_agrees_with_python(pattern: str, text: str) -> None:
    wanted = re.search(pattern.replace("$", r"\Z"), text, re.DOTALL) is not None
    assert TextSearch(pattern).finds(text) is wanted


@given(patterns, st.lists(st.text("ab1", max_size=8), max_size=6))
def test_a_search_remembers_nothing_of_earlier_texts(pattern: str, texts: list[str]) -> None:
    used = TextSearch(pattern)
    assert [used.finds(text) for text in texts] == [TextSearch(pattern).finds(text) for text in texts]


@pytest.mark.parametrize("pattern", ["(a+)+b", "(a|a)*b", "(a*)*b", "a*a*a*a*a*b"])
def test_patterns_that_are_slow_elsewhere(pattern: str) -> None:
    began = time.monotonic()
    assert not TextSearch(pattern).finds("a" * TEXT_CHARS_MAX)
    assert time.monotonic() - began < 5


def test_only_the_beginning_of_a_long_text_is_searched() -> None:
    text = "a" * TEXT_CHARS_MAX + "b"
    assert not TextSearch("b").finds(text)
    assert not TextSearch("a$").finds(text)
    assert TextSearch("a$").finds(text[:-1])


def test_the_table_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_search, "SETS_MAX", 8)
    search = TextSearch("(?:a|b)*a(?:a|b){5}c")
    assert search.finds("ab" * 40 + "abbabbc")
    assert not search.finds("ab" * 40 + "bbbbbbc")
    assert len(search._sets) <= 8
    assert search._count <= MOVES_MAX


@pytest.mark.parametrize("pattern", ["(", "a**", "(?=a)", "\\1", "(?:abc){200}"])
def test_patterns_that_are_refused(pattern: str) -> None:
    with pytest.raises(InvalidRegularExpression, match="pattern"):
        TextSearch(pattern)
