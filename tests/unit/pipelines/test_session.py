"""Java that is missing is explained before Spark is started; where Spark is started from; its errors in one line."""

import os
import sys
from pathlib import Path

import pyspark
import pytest

import tidemill.spark
from tidemill.pipelines.spark.queries import PYTHON_ADVICE as ADVICE
from tidemill.pipelines.spark.queries import line_of
from tidemill.pipelines.spark.session import choose_python
from tidemill.pipelines.spark.spark_home import quick_home

INSTALLED = Path(pyspark.__file__).parent


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


def test_workers_have_the_python_of_the_driver_or_that_of_their_container() -> None:
    own, there = sys.executable, str(Path(sys.executable).parent)
    for master, told in {
        "local[2]": {"PYSPARK_PYTHON": own, "PATH": "/bin"},
        "spark://host:7077": {"PYSPARK_PYTHON": own, "PATH": "/bin"},
        "k8s://host": {"PATH": f"{there}:/bin"},
        "yarn": {"PATH": f"{there}:/bin"},
    }.items():
        environment = {"PATH": "/bin"}
        choose_python(master, environment)
        assert environment == told | {"PYSPARK_DRIVER_PYTHON": own}
    for master in ("local", "yarn"):
        environment = {"PATH": "/bin", "PYSPARK_PYTHON": "./env/bin/python"}
        choose_python(master, environment)
        assert environment["PYSPARK_DRIVER_PYTHON"] == environment["PYSPARK_PYTHON"] == "./env/bin/python"
        assert environment["PATH"] == "/bin"


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


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("x\ntidemill.pipelines.core.errors.DataLost: it is gone\n SQLSTATE: 38000", "it is gone"),
        ("Reason: Traceback (most recent call last):\n  File 1\n    f()\nTypeError: no\n SQLSTATE: 1", "TypeError: no"),
        ("org.apache.spark.SparkException: Job aborted.\n\tat a.b", "Job aborted."),
        ("nothing known", "nothing known"),
        (
            "Traceback:\n  x\nModuleNotFoundError: No module named 'tidemill'\n at",
            f"No module named 'tidemill': {ADVICE}",
        ),
        (
            "Traceback (most recent call last):\n  x\nModuleNotFoundError: No module named 'pyarrow'\n at",
            f"No module named 'pyarrow': {ADVICE}",
        ),
        (
            'java.io.IOException: Cannot run program "/v/bin/python": error=2, No such file or directory\n\tat a.b',
            f'Cannot run program "/v/bin/python": error=2, No such file or directory: {ADVICE}',
        ),
    ],
)
def test_the_line_that_says_what_is_wrong(text: str, line: str) -> None:
    assert line_of(text) == line
