"""The Java client, old and new: compiled and run as it is, against a broker in a process of its own.

The jars come from Maven and stay in the user's cache. Without Maven the tests say so in one line and are left out on
a developer's machine; in CI (`CI=true`) that is a failure.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidemill.testing import Broker

VERSIONS = ("3.9.2", "4.1.0")
SOURCE = Path(__file__).parent / "java" / "Scenario.java"
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "tidemill-tests"
BUILD_S = 300
RUN_S = 150

POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>tests</groupId><artifactId>jars</artifactId><version>1</version><dependencies>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-clients</artifactId><version>{version}</version></dependency>
<dependency><groupId>org.slf4j</groupId><artifactId>slf4j-nop</artifactId><version>1.7.36</version></dependency>
</dependencies></project>"""


@pytest.fixture(scope="module", params=VERSIONS)
def classpath(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    jars = CACHE / f"kafka-clients-{request.param}"
    if not jars.exists() and not fetch(request.param, jars, tmp_path_factory.mktemp("maven")):
        assert "CI" not in os.environ, "the Java client could not be had from Maven"
        pytest.skip("the Java client could not be had: install Maven and a JDK")
    classes = tmp_path_factory.mktemp("classes")
    subprocess.run(["javac", "-cp", f"{jars}/*", "-d", str(classes), str(SOURCE)], check=True, timeout=BUILD_S)
    return f"{classes}:{jars}/*"


def fetch(version: str, jars: Path, folder: Path) -> bool:
    if not shutil.which("mvn") or not shutil.which("javac"):
        return False
    (folder / "pom.xml").write_text(POM.format(version=version))
    command = ["mvn", "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={folder}/jars"]
    if subprocess.run(command, cwd=folder, timeout=BUILD_S, check=False).returncode:
        return False
    jars.parent.mkdir(parents=True, exist_ok=True)
    try:
        (folder / "jars").rename(jars)
    except OSError:  # another file system, or another process was first
        shutil.copytree(folder / "jars", jars, dirs_exist_ok=True)
    return True


@pytest.fixture(scope="module")
def broker(classpath: str) -> Iterator[Broker]:
    """One for each version: scenarios have topics and groups of their own."""
    assert classpath
    with Broker(process=True) as broker:
        yield broker


def run(classpath: str, broker: Broker, *arguments: str) -> None:
    command = [
        "java",
        "-Xmx256m",
        "-XX:TieredStopAtLevel=1",
        "-XX:+UseSerialGC",
        "-cp",
        classpath,
        "Scenario",
        broker.bootstrap_servers,
        *arguments,
    ]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=RUN_S, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.splitlines()[-1] == "ok"


def test_admin(classpath: str, broker: Broker) -> None:
    run(classpath, broker, "admin")


def test_codecs(classpath: str, broker: Broker) -> None:
    run(classpath, broker, "codecs")


@pytest.mark.parametrize("protocol", ["classic", "cooperative", "consumer"])
def test_group(classpath: str, broker: Broker, protocol: str) -> None:
    run(classpath, broker, "group", protocol)


def test_transactions(classpath: str, broker: Broker) -> None:
    run(classpath, broker, "transactions")
