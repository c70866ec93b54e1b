"""Follows a page of the documentation from top to bottom, with a broker of its own."""

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

from tests.support.doc_pages import Block, blocks, commands, difference

# Commands that the page expects to run before it, or that never end.
NOT_RUN = ("make", "pip", "git", ". .venv", "tidemill serve", "tidemill --install-completion", "docker", "curl")
RUN_S = 150


def follow_page(page: Path, folder: Path, broker: "Served") -> None:
    """Run every block of the page that can be run."""
    reader = Reader(broker, folder)
    for block in blocks(page):
        reader.follow(block)


class Served(Protocol):
    """The addresses of a broker that pages refer to."""

    @property
    def bootstrap_servers(self) -> str: ...

    @property
    def grpc(self) -> str: ...

    @property
    def http(self) -> str: ...


class Reader:
    """Runs the commands of a page, and compares their output with the page."""

    def __init__(self, broker: Served, folder: Path, also: Mapping[str, str] = MappingProxyType({})) -> None:
        """`also` maps more addresses of the page to real ones. With it, `curl` commands run too."""
        self._folder = folder
        self._not_run = tuple(each for each in NOT_RUN if not (also and each == "curl"))
        self._addresses = {
            "127.0.0.1:9092": broker.bootstrap_servers,
            "127.0.0.1:6174": broker.grpc,
            "127.0.0.1:8080": broker.http.removeprefix("http://"),
            **also,
        }
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("TIDEMILL_", "PYTEST_"))}
        self._environ = clean | {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "TIDEMILL_BOOTSTRAP": broker.bootstrap_servers,
            "TIDEMILL_BOOTSTRAP_GRPC": broker.grpc,
            "TIDEMILL_BOOTSTRAP_HTTP": broker.http.removeprefix("http://"),
            "COLUMNS": "120",
        }

    def follow(self, block: Block) -> None:
        if block.kind == "console":
            for command in commands(block):
                if not command.line.startswith(self._not_run):
                    self.run_command(command.line, command.printed)
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

    def run_command(self, line: str, shown: list[str]) -> None:
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
