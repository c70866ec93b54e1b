"""The hosted CI runs on every supported Python by targets of the Makefile; commits are checked by the same tools."""

import re
import tomllib
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[3]
SUPPORTED = ["3.11", "3.12", "3.13", "3.14"]


def workflow() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())
    return loaded


def commands() -> list[str]:
    steps = [step for job in workflow()["jobs"].values() for step in job["steps"]]
    return [str(step["run"]) for step in steps if "run" in step]


def test_every_supported_python_is_tested() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = re.findall(r"Python :: (3\.\d+)", "\n".join(project["classifiers"]))
    assert workflow()["jobs"]["test"]["strategy"]["matrix"]["python"] == named == SUPPORTED
    assert project["requires-python"] == f">={SUPPORTED[0]}"


def test_every_target_is_one_of_the_makefile() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    used = {word for command in commands() for word in re.findall(r"make ([a-z]+)", command)}
    assert {"check", "unit", "docs"} <= used
    assert used <= targets


def test_every_job_has_a_time_limit() -> None:
    assert all(job["timeout-minutes"] > 0 for job in workflow()["jobs"].values())


def test_commits_are_checked_by_the_tools_of_make_check() -> None:
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    tools = {hook["entry"].split()[0].removeprefix(".venv/bin/") for hook in hooks}
    recipe = re.search(r"^check:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert recipe is not None
    assert tools == set(re.findall(r"\$\(BIN\)/([a-z-]+)", recipe[1]))


def test_the_issue_forms_are_complete() -> None:
    for path in (ROOT / ".github/ISSUE_TEMPLATE").glob("[!c]*.yml"):
        form = yaml.safe_load(path.read_text())
        assert {"name", "description", "body"} <= set(form), path.name
        ids = [part["id"] for part in form["body"] if part["type"] != "markdown"]
        assert len(ids) == len(set(ids)), path.name
