"""The directories of `tests/unit` are those of the source, so that the tests of a module are found by its path."""

from pathlib import Path

ROOT = Path(__file__).parents[3]
UNIT = ROOT / "tests" / "unit"
SOURCE = ROOT / "src" / "tidemill"
TOOLS = frozenset({"chaos", "mutants", "support"})
"""Directories with the tests of the directory of the same name in `tests`."""


def test_every_directory_of_unit_tests_is_one_of_the_source() -> None:
    folders = {file.parent.relative_to(UNIT) for file in UNIT.rglob("*") if file.is_file() and file.suffix != ".pyc"}
    unknown = {folder.as_posix() for folder in folders if not (SOURCE / folder).is_dir()}
    assert unknown - TOOLS == set(), "name the directory as in src/tidemill"


def test_the_exceptions_are_needed() -> None:
    for name in TOOLS:
        assert (UNIT / name).is_dir()
        assert (ROOT / "tests" / name).is_dir()
        assert not (SOURCE / name).exists()
