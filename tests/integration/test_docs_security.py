"""The guide "Secure a broker" does what it says, with a broker that the page itself starts."""

import shlex
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.support.command_line import CommandLine
from tests.support.doc_pages import ROOT, Block, blocks, commands, same
from tests.support.doc_reader import Reader
from tests.support.postgres import free_port
from tests.support.waiting import eventually

from tidemill.settings import load

PAGE = ROOT / "docs" / "guides" / "security.md"
STOP_S = 60


class PageBroker(NamedTuple):
    """Free ports in place of those of the page."""

    bootstrap_servers: str
    mtls: str
    grpc: str
    http: str


class SecurityReader(Reader):
    """Also writes the files that the page shows, keeps exported variables, and runs the broker."""

    def __init__(self, at: PageBroker, folder: Path) -> None:
        super().__init__(at, folder, {"127.0.0.1:9093": at.mtls})
        self._environ = {name: value for name, value in self._environ.items() if not name.startswith("TIDEMILL_")}
        self._environ |= {
            "TIDEMILL_BOOTSTRAP_GRPC": at.grpc,
            "TIDEMILL_BOOTSTRAP_HTTP": at.http.removeprefix("http://"),
        }
        self._broker: subprocess.Popen[bytes] | None = None
        http = at.http.removeprefix("http://")
        self._environ["TIDEMILL_BOOTSTRAP_HTTP"] = http  # tidemill sql has its default address in no command
        self._servers = {"TIDEMILL_GRPC": at.grpc, "TIDEMILL_HTTP": http}

    def follow(self, block: Block) -> None:
        name = block.text.partition("\n")[0].removeprefix("# ")
        if block.kind in {"properties", "toml"}:
            (self._folder / name).write_text(self._here(block.text), encoding="utf-8")
        if block.kind != "console":
            super().follow(block)
            return
        for command in commands(block):
            if command.line.startswith("export "):
                self._export(command.line)
            elif command.line.startswith("tidemill serve") and not command.printed[0].startswith("error: "):
                self._serve(command.line, command.printed)
            else:
                self.run_command(command.line, [self._here(each) for each in command.printed])

    def _export(self, line: str) -> None:
        name = line.removeprefix("export ").partition("=")[0]
        self._environ[name] = self._run(["bash", "-c", f'{line}; printf %s "${name}"']).stdout

    def _serve(self, line: str, shown: list[str]) -> None:
        self.stop()
        output = self._folder / "broker.out"
        with output.open("wb") as out, (self._folder / "broker.err").open("wb") as err:
            self._broker = subprocess.Popen(
                ["bash", "-c", f"exec {self._here(line)}"],
                cwd=self._folder,
                env=self._environ | self._servers,
                stdout=out,
                stderr=err,
            )
        eventually(lambda: output.read_text().endswith("\n"), "the broker is not ready")
        assert same(self._here(shown[0]), output.read_text().rstrip())

    def stop(self) -> None:
        if self._broker is not None:
            self._broker.terminate()
            assert self._broker.wait(STOP_S) == 0
            self._broker = None


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[SecurityReader]:
    kafka, mtls, grpc, http = (f"127.0.0.1:{free_port()}" for _ in range(4))
    made = SecurityReader(PageBroker(kafka, mtls, grpc, f"http://{http}"), tmp_path)
    try:
        yield made
    finally:
        made.stop()


def test_the_guide_does_what_it_says(reader: SecurityReader, tmp_path: Path) -> None:
    for block in blocks(PAGE):
        reader.follow(block)
    assert (tmp_path / "shop.new").stat().st_mode & 0o077 == 0
    audited = (tmp_path / "broker.err").read_text()
    assert '"event": "login_failed", "who": "shop"' in audited


@pytest.mark.parametrize(
    "block", [each for each in blocks(PAGE) if each.kind == "toml"], ids=lambda each: each.text[2:20]
)
def test_every_settings_file_is_valid(block: Block, tmp_path: Path) -> None:
    (tmp_path / "tidemill.toml").write_text(block.text)
    settings = load(folder=tmp_path)
    assert set(tomllib.loads(block.text)["listeners"]) == {each.name for each in settings.listeners}


def test_every_grant_of_the_table_is_valid(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a broker: a wrong option has exit code 2, a broker that is not there 1."""
    tidemill = CommandLine("127.0.0.1:1", capfd, monkeypatch)
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("|")]
    found = [word for row in rows for word in row.split("`")[1::2] if word.startswith("tidemill acl grant")]
    assert len(found) >= 7
    for line in found:
        assert "no broker answers" in tidemill.refused(1, *shlex.split(line)[1:])
