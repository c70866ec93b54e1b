"""Clients that are not Python. Their libraries come from Maven and from Go's module proxy.

What was fetched and built stays in the user's cache.
Without the tools a test is skipped in one line on a developer's machine; in CI (`CI=true`) that is a failure.
"""

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

NEWEST_JAVA = "4.4.0"
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "tidemill-tests"
BUILD_S = 300
JAVA = ("java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
_SOURCES = Path(__file__).parent

_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>tests</groupId><artifactId>jars</artifactId><version>1</version><dependencies>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-clients</artifactId><version>{version}</version></dependency>
<dependency><groupId>org.slf4j</groupId><artifactId>slf4j-nop</artifactId><version>1.7.36</version></dependency>
</dependencies></project>"""


def java_class_path(version: str, source: str, classes: Path) -> str:
    """Compile a program of `java/` for a version of the Java client; its class path."""
    jars = CACHE / f"kafka-clients-{version}"
    if not jars.exists() and not _fetch(version, jars):
        _leave_out("the Java client could not be fetched: install Maven and a JDK")
    command = ["javac", "-cp", f"{jars}/*", "-d", str(classes), str(_SOURCES / "java" / f"{source}.java")]
    subprocess.run(command, check=True, timeout=BUILD_S)
    return f"{classes}:{jars}/*"


def _fetch(version: str, jars: Path) -> bool:
    if not shutil.which("mvn") or not shutil.which("javac"):
        return False
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "pom.xml").write_text(_POM.format(version=version))
        command = ["mvn", "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={folder}/jars"]
        if subprocess.run(command, cwd=folder, timeout=BUILD_S, check=False).returncode:
            return False
        jars.parent.mkdir(parents=True, exist_ok=True)
        try:
            Path(folder, "jars").rename(jars)
        except OSError:  # another file system, or another process was first
            shutil.copytree(f"{folder}/jars", jars, dirs_exist_ok=True)
    return True


def go_program(folder: str, what: str, seconds: int = BUILD_S) -> Path:
    """The program of a folder, built once for each version of its sources."""
    sources = _SOURCES / folder
    digest = hashlib.sha256(b"".join((sources / name).read_bytes() for name in ("main.go", "go.mod", "go.sum")))
    program = CACHE / f"{what}-{digest.hexdigest()[:16]}"
    if program.exists():
        return program
    if not shutil.which("go"):
        _leave_out(f"{what} could not be built: install Go, https://go.dev/dl, or run: sudo .ci/system tests")
    CACHE.mkdir(parents=True, exist_ok=True)
    built = program.with_suffix(f".{os.getpid()}")
    command = ["go", "build", "-trimpath", "-ldflags=-s -w", "-o", str(built), "."]
    made = subprocess.run(command, cwd=sources, capture_output=True, text=True, timeout=seconds, check=False)
    if made.returncode:
        _leave_out(f"{what} could not be built: {made.stderr.strip()[-500:]}")
    built.rename(program)
    return program


def _leave_out(reason: str) -> None:
    assert "CI" not in os.environ, reason
    pytest.skip(reason)
