"""`tidemill dashboards`: what it writes, and what it refuses."""

import json
from pathlib import Path

import pytest
import yaml
from tests.support.command_line import CommandLine

FAILED, WRONG_USE = 1, 2
FILES = ["cluster.json", "groups.json", "parallel.json", "prometheus.yml", "tidemill-rules.yml", "timelines.json"]


@pytest.fixture
def cli(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> CommandLine:
    monkeypatch.chdir(tmp_path)
    return CommandLine("", capfd, monkeypatch)


def test_the_files_are_written_once(cli: CommandLine, tmp_path: Path) -> None:
    rows = cli.fine("dashboards", "write", "monitoring/here", "--json").json()
    written = sorted(path.name for path in (tmp_path / "monitoring" / "here").iterdir())
    assert sorted(Path(row["file"]).name for row in rows) == written
    assert set(FILES) <= set(written)
    assert all(row["written"] for row in rows)
    again = cli.fine("dashboards", "write", "monitoring/here")
    assert all(line.endswith("  unchanged") for line in again.lines)
    assert "--config.file=monitoring/here/prometheus.yml" in again.err


def test_a_file_that_was_changed_is_kept(cli: CommandLine, tmp_path: Path) -> None:
    cli.fine("dashboards", "write", ".")
    (tmp_path / "cluster.json").write_bytes(b"mine \xff")
    (tmp_path / "groups.json").unlink()
    error = cli.refused(FAILED, "dashboards", "write", ".")
    assert error.startswith("cluster.json has other content; nothing was written; add --force")
    assert not (tmp_path / "groups.json").exists()
    rows = cli.fine("dashboards", "write", ".", "--force", "--json").json()
    assert sorted(row["file"] for row in rows if row["written"]) == ["cluster.json", "groups.json"]
    assert json.loads((tmp_path / "cluster.json").read_text())["uid"] == "tidemill-cluster"


def test_targets_are_scraped(cli: CommandLine, tmp_path: Path) -> None:
    cli.fine("dashboards", "write", ".", "--target", "broker1:8080", "--target", "[::1]:8081")
    assert 'targets: ["broker1:8080", "[::1]:8081"]' in (tmp_path / "prometheus.yml").read_text()


@pytest.mark.parametrize("target", ["broker", "broker:0", "broker:99999", "::1:80", ""])
def test_wrong_targets_change_nothing(cli: CommandLine, tmp_path: Path, target: str) -> None:
    assert cli.refused(WRONG_USE, "dashboards", "write", ".", "--target", target).startswith("--target: ")
    assert list(tmp_path.iterdir()) == []


def test_a_target_is_text_and_not_yaml(cli: CommandLine, tmp_path: Path) -> None:
    hostile = 'b"], [1\nevil #:80'
    cli.fine("dashboards", "write", ".", "--target", hostile)
    config = yaml.safe_load((tmp_path / "prometheus.yml").read_text())
    assert config["scrape_configs"][0]["static_configs"] == [{"targets": [hostile]}]


def test_places_that_cannot_be_written(cli: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "choose another directory" in cli.refused(FAILED, "dashboards", "write", "file")
    assert "choose another directory" in cli.refused(FAILED, "dashboards", "write", "x" * 300)
    assert "s3:" in cli.refused(WRONG_USE, "dashboards", "write", "s3://bucket/x")
    (tmp_path / "cluster.json").mkdir()
    assert "cluster.json cannot be read" in cli.refused(FAILED, "dashboards", "write", ".")
    assert list((tmp_path / "cluster.json").iterdir()) == []


def test_the_list_names_every_dashboard(cli: CommandLine) -> None:
    rows = cli.fine("dashboards", "list", "--json").json()
    assert [row["name"] for row in rows][:2] == ["cluster", "topic"]
    assert all(row["panels"] > 3 for row in rows)
    assert cli.fine("dashboards", "list").lines[0].split() == ["NAME", "TITLE", "PANELS", "DESCRIPTION"]
