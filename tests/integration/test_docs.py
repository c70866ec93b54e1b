"""Everything that the documentation shows is run: commands print what the page says, programs end well."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.integration.pages import ROOT, Block, blocks, commands, difference, links, pages, same

from tidemill.testing import Broker

# What a page tells the reader to do before, or what would not end by itself.
NOT_RUN = ("make", "pip", "git", ". .venv", "tidemill serve", "tidemill --install-completion", "docker", "curl")
RUN_S = 120
PAGES = pages()


def names(paths: list[Path]) -> list[str]:
    return [str(path.relative_to(ROOT)) for path in paths]


class Reader:
    """Someone who follows a page from top to bottom, with a broker of their own."""

    def __init__(self, broker: Broker, folder: Path) -> None:
        self._folder = folder
        self._addresses = {
            "127.0.0.1:9092": broker.bootstrap_servers,
            "127.0.0.1:6174": broker.grpc,
            "127.0.0.1:8080": broker.http.removeprefix("http://"),
        }
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("TIDEMILL_", "PYTEST_"))}
        self._environ = clean | {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "TIDEMILL_KAFKA": broker.bootstrap_servers,
            "TIDEMILL_GRPC": broker.grpc,
            "COLUMNS": "120",
        }

    def follow(self, block: Block) -> None:
        if block.kind == "console":
            for command in commands(block):
                if not command.line.startswith(NOT_RUN):
                    self._run_command(command.line, command.printed)
        elif block.kind == "python":
            self._run_python(self._here(block.text))

    def _here(self, text: str) -> str:
        for written, meant in self._addresses.items():
            text = text.replace(written, meant)
        return text

    def _run(self, words: list[str]) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            words, cwd=self._folder, env=self._environ, capture_output=True, text=True, timeout=RUN_S, check=False
        )

    def _run_command(self, line: str, shown: list[str]) -> None:
        ran = self._run(["bash", "-c", self._here(line)])
        whole = f"$ {line}\n{ran.stdout}{ran.stderr}"
        assert (ran.returncode != 0) == any(each.startswith("error: ") for each in shown), whole
        wrong = difference([each for each in shown if each], _lines(ran.stdout), _lines(ran.stderr))
        assert wrong is None, f"{wrong}\n{whole}"

    def _run_python(self, text: str) -> None:
        is_test = re.search(r"^(async )?def test_", text, re.MULTILINE) is not None
        path = self._folder / ("test_page.py" if is_test else "page.py")
        path.write_text(text, encoding="utf-8")
        how = ["-m", "pytest", "-q", "-p", "no:cacheprovider"] if is_test else []
        ran = self._run([sys.executable, *how, str(path)])
        assert ran.returncode == 0, f"{text}\n{ran.stdout}{ran.stderr}"


def _lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.strip()]


@pytest.mark.parametrize("page", PAGES, ids=names(PAGES))
def test_a_page_does_what_it_says(page: Path, tmp_path: Path) -> None:
    found = [block for block in blocks(page) if block.kind in {"console", "python"}]
    if not found:
        return
    with Broker() as broker:
        reader = Reader(broker, tmp_path)
        for block in found:
            reader.follow(block)


@pytest.mark.parametrize("page", PAGES, ids=names(PAGES))
def test_links_lead_somewhere(page: Path) -> None:
    broken = [target for target in links(page) if not (page.parent / target).exists()]
    assert broken == []


def test_the_reference_is_what_the_tables_say() -> None:
    generate = _generator()
    stale = [name for name, make in generate.PAGES.items() if (generate.FOLDER / name).read_text() != make()]
    assert stale == [], "run: python docs/reference/generate.py"


def _generator() -> Any:
    path = ROOT / "docs" / "reference" / "generate.py"
    spec = importlib.util.spec_from_file_location("generate_reference", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_example_is_a_program_that_ends_well(tmp_path: Path) -> None:
    examples = sorted((ROOT / "examples").glob("*.py"))
    assert examples
    with Broker() as broker:
        reader = Reader(broker, tmp_path)
        for example in examples:
            reader.follow(Block("python", example.read_text(encoding="utf-8")))


@pytest.mark.parametrize(
    ("shown", "out", "err", "fine"),
    [
        (["a", "b"], ["a"], ["b"], True),
        (["b", "a"], ["a"], ["b"], True),
        (["a", "b"], ["b", "a"], [], False),
        (["a"], ["a", "b"], [], False),
        (["a", "..."], ["a", "b", "c"], [], True),
        (["...", "c"], ["a", "b", "c"], [], True),
        (["...", "c"], ["a", "c", "d"], [], False),
        (["1.5 s  late"], ["22.75 s late"], [], True),
        (["2 s late"], ["3 s late"], [], False),
        (["at ... o'clock"], ["at four o'clock"], [], True),
    ],
)
def test_the_comparison_can_fail(shown: list[str], out: list[str], err: list[str], fine: bool) -> None:
    assert (difference(shown, out, err) is None) == fine


def test_times_and_ids_are_whatever_they_are() -> None:
    assert same("2026-11-16T17:12:06.599Z x", "2027-01-02T03:04:05.006Z  x")
    assert not same("2026-11-16T17:12:06.599Z x", "2027-01-02T03:04:05.006Z y")
