"""Directories and files of `tests/unit` are named as in the source, so that the tests of a module are found by path."""

from pathlib import Path

ROOT = Path(__file__).parents[3]
UNIT = ROOT / "tests" / "unit"
SOURCE = ROOT / "src" / "tidemill"
TOOLS = frozenset({"chaos", "mutants", "support"})
"""Directories with the tests of the directory of the same name in `tests`."""
SEVERAL_MODULES = {
    "servers/kafka/test_response_fields.py": "fields of the responses of all APIs",
    "servers/kafka/test_throttling.py": "quotas in produce, fetch and the connection",
    "test_public_names.py": "the public face of the package",
}


def test_every_directory_of_unit_tests_is_one_of_the_source() -> None:
    folders = {file.parent.relative_to(UNIT) for file in UNIT.rglob("*") if file.is_file() and file.suffix != ".pyc"}
    unknown = {folder.as_posix() for folder in folders if not (SOURCE / folder).is_dir()}
    assert unknown - TOOLS == set(), "name the directory as in src/tidemill"


def test_every_file_of_unit_tests_is_named_after_a_module() -> None:
    """A second file about a module adds a suffix. The tests of a core may be next to those of its shell."""
    files = {file.relative_to(UNIT) for file in UNIT.rglob("test_*.py")}
    unknown = {file.as_posix() for file in files if not names_of(file.parent, file.stem.removeprefix("test_"))}
    assert unknown - SEVERAL_MODULES.keys() == set(), "name the file after the module that it tests"
    assert SEVERAL_MODULES.keys() - unknown == set()


def names_of(folder: Path, name: str) -> list[str]:
    """The modules and packages that a test file with this name may be about."""
    tool = folder.parts[:1] and folder.parts[0] in TOOLS
    source = ROOT / "tests" / folder if tool else SOURCE / folder
    known = {path.stem for each in (source, source / "core") for path in each.glob("*") if path.suffix in {".py", ""}}
    return [each for each in known if name == each or name.startswith(f"{each}_")]


def test_the_exceptions_are_needed() -> None:
    for name in TOOLS:
        assert (UNIT / name).is_dir()
        assert (ROOT / "tests" / name).is_dir()
        assert not (SOURCE / name).exists()
