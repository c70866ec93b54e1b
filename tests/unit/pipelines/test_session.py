"""Java that is missing is explained before Spark is started."""

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
    with pytest.raises(tidemill.spark.JavaMissing, match="where there is no bin/java"):
        tidemill.spark.session()
