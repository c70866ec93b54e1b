"""Conditions, compared with a model that evaluates the same tree in another way."""

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.servers.http.core.record_condition import (
    CHARS_MAX,
    DEPTH_MAX,
    MISSING,
    STEPS_MAX,
    VALUES_MAX,
    InvalidCondition,
    RecordValues,
    parse_condition,
)

NAMES = ("a", "b", "total")
scalars = st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from([0.5, 1.0, "a", "b", "ab", ""])
documents = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=3),
    max_leaves=8,
)
steps = st.lists(st.sampled_from([*NAMES, 0, 1, -1, None]), max_size=3)
operators = st.sampled_from(["=", "==", "!=", "<", "<=", ">", ">="])
literals = st.integers(-3, 3) | st.sampled_from([0.5, "a", "ab", ""]) | st.booleans() | st.none()


def record(value: Any = MISSING, key: Any = MISSING, **more: Any) -> RecordValues:
    headers: dict[str, list[str | None]] = more.get("headers", {})
    return RecordValues(lambda: value, lambda: key, headers, more.get("partition", 1), more.get("offset", 7), 1_000)


def holds(text: str, value: Any = MISSING, key: Any = MISSING, **more: Any) -> bool:
    return parse_condition(text)(record(value, key, **more))


def path_text(path: list[Any]) -> str:
    shown = {None: "[*]"}
    return "$" + "".join(shown.get(each) or (f"[{each}]" if isinstance(each, int) else f".{each}") for each in path)


def model_values(value: Any, path: list[Any]) -> list[Any]:
    if not path:
        return [value]
    step, *rest = path
    if step is None:
        inner = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
    else:
        try:
            is_right = isinstance(value, dict) == isinstance(step, str) and isinstance(value, list | dict)
            inner = [value[step]] if is_right else []
        except (KeyError, IndexError):
            inner = []
    return [found for each in inner for found in model_values(each, rest)]


def model_compares(value: Any, operator: str, literal: Any) -> bool:
    def kind(each: Any) -> str:
        return "number" if type(each) in {int, float} else type(each).__name__

    if kind(value) != kind(literal):
        return operator == "!="
    answers = {"=": value == literal, "==": value == literal, "!=": value != literal}
    if operator in answers:
        return bool(answers[operator])
    return bool({"<": value < literal, "<=": value <= literal, ">": value > literal, ">=": value >= literal}[operator])


@pytest.mark.parametrize(("word", "value"), [("true", True), ("false", False), ("null", None)])
def test_words_are_the_values_of_json(word: str, value: object) -> None:
    assert holds(f"$ = {word}", value)
    for other in (True, False, None, 1, 0, "true"):
        assert holds(f"$ = {word}", other) is (other is value)


@given(documents, steps, operators, literals)
def test_comparisons_agree_with_the_model(value: Any, path: list[Any], operator: str, literal: Any) -> None:
    text = f"{path_text(path)} {operator} {json.dumps(literal)}"
    if operator not in {"=", "==", "!="} and (literal is None or isinstance(literal, bool)):
        with pytest.raises(InvalidCondition, match="needs a number or a text"):
            parse_condition(text)
        return
    wanted = any(model_compares(each, operator, literal) for each in model_values(value, path))
    assert holds(text, value) is wanted


@given(documents, steps)
def test_a_path_alone_holds_if_it_selects_something(value: Any, path: list[Any]) -> None:
    assert holds(path_text(path), value) is bool(model_values(value, path))


trees = st.recursive(
    st.sampled_from([True, False]),
    lambda inner: st.tuples(st.sampled_from(["and", "or"]), inner, inner) | st.tuples(st.just("not"), inner),
    max_leaves=6,
)


def tree_text(tree: Any) -> str:
    if isinstance(tree, bool):
        return "$.a = 1" if tree else "$.a = 2"
    if tree[0] == "not":
        return f"not ({tree_text(tree[1])})"
    return f"({tree_text(tree[1])} {tree[0]} {tree_text(tree[2])})"


def tree_value(tree: Any) -> bool:
    if isinstance(tree, bool):
        return tree
    if tree[0] == "not":
        return not tree_value(tree[1])
    first, second = tree_value(tree[1]), tree_value(tree[2])
    return first and second if tree[0] == "and" else first or second


@given(trees)
def test_and_or_and_not(tree: Any) -> None:
    assert holds(tree_text(tree), {"a": 1}) is tree_value(tree)


def test_and_binds_stronger_than_or() -> None:
    assert holds("$.a = 1 or $.a = 2 and $.a = 3", {"a": 1})
    assert not holds("($.a = 1 or $.a = 2) and $.a = 3", {"a": 1})
    assert holds("not $.a = 2 and $.a = 1", {"a": 1})


def test_other_roots() -> None:
    assert holds("$key.region = 'eu'", key={"region": "eu"})
    assert holds("$partition = 1 and $offset >= 7 and $timestamp < 1001")
    headers = {"trace": ["1", "2", None]}
    assert holds("$headers.trace = '2'", headers=headers)
    assert holds("$headers['trace'] = null", headers=headers)
    assert holds("$headers[*] matches '^[12]$'", headers=headers)
    assert not holds("$headers.none", headers=headers)
    assert not holds("$.a", MISSING)
    assert not holds("$ != 1", MISSING)


def test_texts() -> None:
    assert holds("$.a contains 'b c'", {"a": "ab cd"})
    assert holds(r"$['it\'s'] = 'a\\b'", {"it's": r"a\b"})
    assert holds('$["x y"][0] = "q"', {"x y": ["q"]})
    assert not holds("$.a contains '1'", {"a": 1})
    assert holds("$.a matches 'c?d$'", {"a": "ab cd"})


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "expected a path"),
        ("$.a >", "expected a number, a quoted text, true, false or null"),
        ("$.a..b", "expected a name after the dot"),
        ("$.a[1.5]", "expected a number, a quoted name or \\* in brackets"),
        ("$.a[1", "expected ]"),
        ("($.a", "expected \\)"),
        ("$.a $.b", "expected and, or, or the end"),
        ("$wrong", "expected a path that begins with one of"),
        ("$.a = 'x", "is not valid at position 5"),
        ("$.a contains 1", "contains needs a quoted text"),
        ("__import__('os')", "expected a path"),
        ("$.a; drop", "is not valid at position 3"),
        ("(" * (DEPTH_MAX + 1), "nested more than"),
        ("$" + ".a" * (STEPS_MAX + 1), "more than 32 steps"),
        ("$" + " " * CHARS_MAX, "characters, and 1000 are accepted"),
    ],
)
def test_conditions_that_are_refused(text: str, reason: str) -> None:
    with pytest.raises(InvalidCondition, match=reason):
        parse_condition(text)


@given(st.text("$.a[]*'\"()<>=! andornt0159\\-", max_size=60))
def test_any_text_is_a_condition_or_is_refused(text: str) -> None:
    with suppress(InvalidCondition):
        assert parse_condition(text)(record({"a": [1]})) in {True, False}


def test_the_values_of_a_path_are_bounded() -> None:
    wide = [[1] * 100 for _ in range(100)]
    assert holds("$[*][*] = 1", wide)
    assert not holds("$[*] = 7", [*[1] * VALUES_MAX, 7])


def test_numbers_are_compared_by_value_and_truth_is_no_number() -> None:
    assert holds("$.a = 1.0", {"a": 1})
    assert holds("$.a = 1", {"a": 1.0})
    assert not holds("$.a = 1", {"a": True})
    assert not holds("$.a = true", {"a": 1})
    assert holds("$.a != 1", {"a": True})


def test_a_path_has_at_most_32_steps() -> None:
    value: Any = 1
    for _ in range(32):
        value = {"a": value}
    assert holds("$" + ".a" * 32 + " = 1", value)
    with pytest.raises(InvalidCondition, match="more than 32 steps"):
        parse_condition("$" + ".a" * 33 + " = 1")


def test_an_error_shows_the_first_characters_of_what_is_wrong() -> None:
    with pytest.raises(InvalidCondition, match="at 'aaaaaaaaaaaaaaaaaaaa': expected"):
        parse_condition("$.a = 1 and " + "a" * 30)
