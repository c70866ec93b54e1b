"""The sdist and the wheel, built as they are published: what is in them, and which version they name.

The build backend is run directly, so that nothing is downloaded.
"""

import configparser
import importlib.util
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from email import message_from_string
from email.message import Message
from pathlib import Path

import pytest

import tidemill

ROOT = Path(__file__).parents[3]
WAIT_S = 120
# Of tools and runs: environments, caches, builds, and the directories of a Spark checkpoint.
UNWANTED = re.compile(
    r"(^|/)(\.venv|__pycache__|\.[a-z_]+_cache|\.hypothesis|dist|build|data|rel|site|spark-warehouse|metastore_db)/"
    r"|\.(pyc|log|crc)$"
)
IN_SDIST = {"src", "tests", "docs", "examples", "benchmarks", ".ci"}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if importlib.util.find_spec("hatchling") is None:
        pytest.fail("hatchling is missing from this environment; run: make setup")
    target = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", str(target)], cwd=ROOT, check=True, timeout=WAIT_S
    )
    return target


@pytest.fixture(scope="module")
def wheel(built: Path) -> zipfile.ZipFile:
    (path,) = built.glob("*.whl")
    return zipfile.ZipFile(path)


@pytest.fixture(scope="module")
def sdist(built: Path) -> set[str]:
    (path,) = built.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        return {name.partition("/")[2] for name in archive.getnames()}


def sources(*folders: str) -> set[str]:
    """The files below these folders of the root, without what tools left there."""
    found = (path for folder in folders for path in (ROOT / folder).rglob("*") if path.is_file())
    return {name for path in found if not UNWANTED.search(name := path.relative_to(ROOT).as_posix())}


def metadata(wheel: zipfile.ZipFile) -> Message:
    (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    return message_from_string(wheel.read(name).decode())


def test_the_wheel_has_the_packages_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    names = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert names == {name.removeprefix("src/") for name in sources("src")}
    assert {"tidemill/py.typed", "tidemill/wire/grpc/timeline.proto", "tidemill/wire/grpc/timeline_pb2.pyi"} <= names
    assert {name.partition("/")[0] for name in names} == {"tidemill", "pyspark_tidemill"}


def test_the_wheel_has_its_commands_and_its_license(wheel: zipfile.ZipFile) -> None:
    info = f"tidemill-{tidemill.__version__}.dist-info"
    points = configparser.ConfigParser()
    points.read_string(wheel.read(f"{info}/entry_points.txt").decode())
    assert points["console_scripts"]["tidemill"] == "tidemill.__main__:main"
    assert points["pytest11"]["tidemill"] == "tidemill.testing.plugin"
    assert b"Apache License" in wheel.read(f"{info}/licenses/LICENSE")


def test_the_sdist_has_tests_docs_and_examples_and_no_leftovers(sdist: set[str]) -> None:
    assert sources(*IN_SDIST) <= sdist
    assert {"pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "Makefile", "PKG-INFO"} <= sdist
    assert sorted(name for name in sdist if UNWANTED.search(name)) == []
    assert {name.partition("/")[0] for name in sdist if "/" in name} == IN_SDIST


def test_every_place_names_the_same_version(wheel: zipfile.ZipFile, built: Path, tmp_path: Path) -> None:
    version = tidemill.__version__
    assert metadata(wheel)["Version"] == version
    assert {path.name for path in built.iterdir()} == {
        f"tidemill-{version}.tar.gz",
        f"tidemill-{version}-py3-none-any.whl",
    }
    wheel.extractall(tmp_path)  # noqa: S202 -- a wheel that this test has built
    program = "import sys, tidemill.cli.main as m; print(m.__file__); sys.exit(m.main(['--version']))"
    ran = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=WAIT_S,
    )
    assert ran.stdout.splitlines() == [str(tmp_path / "tidemill/cli/main.py"), f"tidemill {version}"], ran


def test_the_documentation_names_no_other_version() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    named = {
        (page.name, found)
        for page in pages
        for found in re.findall(r"\btidemill[- ](\d+\.\d+\.\d+)", page.read_text(), re.IGNORECASE)
    }
    assert {found for _, found in named} <= {tidemill.__version__}, named


def test_the_project_page_has_its_links(wheel: zipfile.ZipFile) -> None:
    links = dict(line.split(", ") for line in metadata(wheel).get_all("Project-URL", []))
    assert {"Homepage", "Documentation", "Changelog", "Issues"} <= set(links)
    assert all(link.startswith("https://") for link in links.values()), links
