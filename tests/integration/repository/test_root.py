"""The root of the repository holds what is listed here, and nothing else.

A checkpoint of a Spark run was committed once, because it was in the directory where `git add` ran.
"""

import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[3]
ALLOWED = frozenset(
    {
        ".ci",
        ".github",
        ".gitignore",
        ".pre-commit-config.yaml",
        "ARCHITECTURE.md",
        "CHANGELOG.md",
        "CODE_OF_CONDUCT.md",
        "CONTRIBUTING.md",
        "LICENSE",
        "Makefile",
        "README.md",
        "SECURITY.md",
        "benchmarks",
        "docs",
        "examples",
        "mkdocs.yml",
        "pyproject.toml",
        "src",
        "tests",
    }
)
"""Add a name here when a file or directory belongs in the root."""


def root_entries(root: Path) -> set[str]:
    """The first path component of every tracked file, or the whole listing where git cannot say what is tracked.

    An unpacked sdist and a checkout without git have no build products in them, so the listing is right there.
    """
    listed = None
    if (root / ".git").exists() and (git := shutil.which("git")) is not None:
        listed = subprocess.run([git, "-C", str(root), "ls-files", "-z"], capture_output=True, text=True)
    if listed is None or listed.returncode != 0:
        return {entry.name for entry in root.iterdir()} - {"PKG-INFO"} - made_by_tools(root)
    return {name.partition("/")[0] for name in listed.stdout.split("\0") if name}


def made_by_tools(root: Path) -> set[str]:
    """Names that .gitignore excludes: environments, caches, build products."""
    patterns = (root / ".gitignore").read_text().splitlines()
    return {match.name for each in patterns if each and each[0] != "#" for match in root.glob(each.strip("/"))}


def test_the_root_holds_only_what_is_listed() -> None:
    unknown = sorted(root_entries(ROOT) - ALLOWED)
    assert not unknown, f"unknown entries in the root: {unknown}; delete them, or add them to ALLOWED in {__file__}"


def test_an_unknown_entry_is_found_without_git(tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_text("# tools\n.venv/\n*.log\n")
    for name in (".venv", "src", "rel"):
        (tmp_path / name).mkdir()
    (tmp_path / "run.log").write_text("")
    assert root_entries(tmp_path) - ALLOWED == {"rel"}


def test_an_unknown_entry_is_found_by_git(tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_text("")
    for name in ("rel/offsets", "notes"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "0").write_text("v1")
    for command in (["init", "-q"], ["add", "rel"]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    assert root_entries(tmp_path) == {"rel"}  # `notes` is not tracked
