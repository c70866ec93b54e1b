"""Java that is missing or too old is explained before Spark starts."""

from pathlib import Path

import pytest

import tidemill.spark


def test_no_java_at_all(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(tidemill.spark.JavaMissing, match="no java on the PATH; Spark needs Java 17 or newer: apt-get"):
        tidemill.spark.session()


def test_a_java_home_without_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(tidemill.spark.JavaMissing, match="which has no bin/java"):
        tidemill.spark.session()


@pytest.mark.parametrize(
    ("said", "line"),
    [
        ('openjdk version "11.0.2" 2019-01-15', "bin/java is Java 11; Spark needs Java 17 or newer: "),
        ('java version "1.8.0_202"', "bin/java is Java 8; Spark needs Java 17 or newer: "),
        ("segmentation fault", "bin/java -version prints no version; Spark needs Java 17 or newer: "),
    ],
)
def test_a_java_that_is_too_old(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, said: str, line: str) -> None:
    program = tmp_path / "bin" / "java"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho '{said}' >&2\n")
    program.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(tidemill.spark.JavaMissing, match=line):
        tidemill.spark.session()
