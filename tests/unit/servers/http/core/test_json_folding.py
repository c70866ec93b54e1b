"""Formatted JSON is folded by its brackets, and no line of it changes."""

import json
from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tidemill.servers.http.core.json_folding import FOLDED_DEPTH_MAX, FOLDED_LINES_MAX, JsonPart, folded_json

DOCUMENTS: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.sampled_from(["{", "[", "}", "],"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=20,
)


def lines_of(parts: Sequence[JsonPart]) -> list[str]:
    found = []
    for part in parts:
        found += [part.text, *lines_of(part.inside), *([part.end] if part.end else [])]
    return found


@given(DOCUMENTS)
def test_the_lines_stay_as_they_are(document: Any) -> None:
    text = json.dumps(document, indent=2, ensure_ascii=False)
    parts = folded_json(text)
    if "\n" not in text:
        assert parts is None
        return
    assert parts is not None
    assert lines_of(parts) == text.split("\n")
    assert sum(each.lines for each in parts) == text.count("\n") + 1
    assert len(parts) == 1


def test_objects_and_lists_are_folded() -> None:
    parts = folded_json(json.dumps({"a": [1, {"b": 2}], "c": {}}, indent=2))
    assert parts is not None
    [whole] = parts
    assert (whole.text, whole.end, whole.lines) == ("{", "}", 9)
    assert [each.text for each in whole.inside] == ['  "a": [', '  "c": {}']
    assert [each.text for each in whole.inside[0].inside] == ["    1,", "    {"]


def test_a_text_that_was_cut_is_folded_as_far_as_it_goes() -> None:
    parts = folded_json('{\n  "a": [\n    1,\n    2')
    assert parts is not None
    assert lines_of(parts) == ["{", '  "a": [', "    1,", "    2"]


def test_deep_and_long_texts_are_bounded() -> None:
    depth = 10 * FOLDED_DEPTH_MAX
    text = json.dumps(json.loads("[" * depth + "1" + "]" * depth), indent=1)
    parts = folded_json(text)
    assert parts is not None
    assert lines_of(parts) == text.split("\n")
    found, deepest = 0, parts
    while deepest and deepest[0].inside:
        found, deepest = found + 1, deepest[0].inside
    assert found == FOLDED_DEPTH_MAX
    assert folded_json("[\n" + "1,\n" * (FOLDED_LINES_MAX - 1) + "1]") is None
    longest = "[\n" + "1,\n" * (FOLDED_LINES_MAX - 2) + "1]"
    parts = folded_json(longest)
    assert parts is not None
    assert lines_of(parts) == longest.split("\n")


def test_two_lines_are_folded() -> None:
    assert folded_json("[\n]") == [JsonPart("[", [], "]")]
    assert folded_json("[]") is None


@given(DOCUMENTS, st.integers(0, 4))
def test_a_part_is_as_deep_as_its_indentation_up_to_the_limit(document: Any, above: int) -> None:
    depth = FOLDED_DEPTH_MAX - above
    text = json.dumps(document, indent=1)
    for _ in range(depth):
        text = "[\n 0,\n " + text.replace("\n", "\n ") + ",\n 1\n]"
    parts = folded_json(text)
    assert parts is not None
    assert lines_of(parts) == text.split("\n")

    def check(found: Sequence[JsonPart], level: int) -> None:
        for part in found:
            indentation = len(part.text) - len(part.text.lstrip())
            assert indentation == level or level == FOLDED_DEPTH_MAX < indentation, part.text
            assert not part.end or part.end.startswith(" " * level + part.end.lstrip()), part.text
            check(part.inside, level + 1)

    check(parts, 0)
