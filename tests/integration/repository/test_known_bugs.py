"""Every bug that new brokers repeat has a test of its name, and docs/concepts/known-bugs.md names it."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "concepts" / "known-bugs.md"
BUGS = range(1, 23)
ATTACKS = "## Found by attacking Tidemill"
FINDINGS = range(1, 23)
TEST = re.compile(r"^(?:async )?def (test_b(\d+)_(?:to_b(\d+)_)?\w+)", re.MULTILINE)
ROW = re.compile(r"^\| B(\d+) \|.*\|$", re.MULTILINE)
FINDING = re.compile(r"^\| F(\d+) \|.*\|$", re.MULTILINE)


def named_tests() -> dict[str, set[int]]:
    """The tests that are named after bugs, and after which."""
    found: dict[str, set[int]] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for name, first, last in TEST.findall(path.read_text()):
            found[name] = set(range(int(first), int(last or first) + 1))
    return found


def test_each_has_a_test_of_its_name() -> None:
    covered = set().union(*(bugs for name, bugs in named_tests().items() if "_to_b" not in name))
    assert covered == set(BUGS)


def test_the_page_names_them_all_and_nothing_else() -> None:
    page = PAGE.read_text()
    assert [int(number) for number in ROW.findall(page)] == list(BUGS)
    tests = named_tests()
    reported = set(re.findall(r"`(test_\w+)`", page.partition(ATTACKS)[0]))
    assert reported == set(tests)
    for match in ROW.finditer(page):
        mine = set(re.findall(r"`(test_\w+)`", match[0]))
        assert mine, f"B{match[1]} names no test"
        assert all(int(match[1]) in tests[name] for name in mine), f"B{match[1]} names a test of another bug"


def test_each_finding_names_tests_that_there_are() -> None:
    rows = list(FINDING.finditer(PAGE.read_text()))
    assert [int(row[1]) for row in rows] == list(FINDINGS)
    files = (path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    present = {name for text in files for name in re.findall(r"^(?:async )?def (test_\w+)", text, re.MULTILINE)}
    for row in rows:
        named = set(re.findall(r"`(test_\w+)`", row[0]))
        assert named, f"F{row[1]} names no test"
        assert not named - present, f"F{row[1]} names tests that there are not"
