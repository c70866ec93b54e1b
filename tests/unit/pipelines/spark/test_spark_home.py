"""The SPARK_HOME from which workers start quickly."""

import os
from pathlib import Path

import pyspark
import pytest

from tidemill.pipelines.spark.spark_home import quick_home

INSTALLED = Path(pyspark.__file__).parent


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    for name in ("SPARK_HOME", "PYSPARK_PYTHON"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_spark_starts_from_a_home_without_a_zip(cache: Path) -> None:
    for _ in range(2):
        with quick_home():
            home = Path(os.environ["SPARK_HOME"])
            assert (home / "bin" / "spark-submit").samefile(INSTALLED / "bin" / "spark-submit")
            assert (home / "jars").samefile(INSTALLED / "jars")
            assert not (home / "python").exists()
        assert "SPARK_HOME" not in os.environ


@pytest.mark.parametrize(("name", "value"), [("SPARK_HOME", "/opt/spark"), ("PYSPARK_PYTHON", "/usr/bin/other")])
def test_a_spark_that_the_user_chose_stays(cache: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(name, value)
    with quick_home():
        assert os.environ.get("SPARK_HOME") == (value if name == "SPARK_HOME" else None)


def test_without_a_cache_spark_starts_as_always(cache: Path) -> None:
    cache.write_text("a file, not a folder")
    with quick_home():
        assert "SPARK_HOME" not in os.environ
