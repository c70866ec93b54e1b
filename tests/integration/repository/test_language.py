"""The words that the writing guide replaces are not in the source, the docs and the tests."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
WORDS = (
    "told",
    "nobody",
    "somebody",
    "whoever",
    "anew",
    "mend",
    "mends",
    "mended",
    "beside",
    "for good",
    "at hand",
    "without a word",
    "attendance",
    "roster",
    "burial",
    "graves",
    "crew",
    "door",
    "doors",
    "desk",
)
TEST_NAME = re.compile(
    r"^test_(what|whatever|who|whoever|whose|when|where|which|how|it|nothing|everything|one_that)(_|$)"
    r"|_(who|told|nobody|somebody|anybody|goes_on|hears|let_in|stands_still)(_|$)"
)
"""A test is named after its subject and the behaviour, not after a pronoun: `test_a_late_batch_is_rejected`."""
PAGES = ("README.md", "CHANGELOG.md", "ARCHITECTURE.md", "SECURITY.md", "CONTRIBUTING.md")
LIST = Path(__file__).relative_to(ROOT).as_posix()
UNIX_USER = {"src/tidemill/query_engine/confinement.py", "docs/guides/sql.md", "tests/integration/test_cli_user.py"}
"""Files that name the Unix user `nobody`."""


def text_files() -> list[str]:
    places = ("src", "tests", "benchmarks", "docs", "examples", *PAGES)
    listed = subprocess.run(["git", "ls-files", *places], cwd=ROOT, capture_output=True, text=True, check=True)
    names = listed.stdout.splitlines()
    return [name for name in names if name.endswith((".py", ".md")) and "_pb2" not in name and name != LIST]


@pytest.mark.parametrize("word", WORDS)
def test_a_replaced_word_does_not_return(word: str) -> None:
    pattern = re.compile(rf"\b{word}\b", re.IGNORECASE)
    found = [
        f"{name}:{number}"
        for name in text_files()
        for number, line in enumerate((ROOT / name).read_text(encoding="utf-8").splitlines(), 1)
        if pattern.search(line) and not (word == "nobody" and name in UNIX_USER)
    ]
    assert found == [], f"{word!r}: see docs/writing.md"


def test_names_of_tests_begin_with_their_subject() -> None:
    found = [
        f"{name}: {test}"
        for name in text_files()
        if name.startswith(("tests/", "examples/")) and name.endswith(".py")
        for test in re.findall(r"def (test_\w+)", (ROOT / name).read_text(encoding="utf-8"))
        if TEST_NAME.search(test)
    ]
    assert found == [], "see docs/writing.md"


def test_class_names_are_unique() -> None:
    places: dict[str, list[str]] = {}
    for name in text_files():
        if name.startswith("src/") and name.endswith(".py"):
            for found in re.findall(r"^class (\w+)", (ROOT / name).read_text(encoding="utf-8"), re.MULTILINE):
                places.setdefault(found, []).append(name)
    assert {each: where for each, where in places.items() if len(where) > 1} == {}
