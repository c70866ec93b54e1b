"""A YARN for tests: Hadoop's own resource manager and node manager in one JVM, on loopback.

The jars come from Maven and stay in the user's cache. Hadoop's other dependencies are among PySpark's jars.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark
import pytest

HADOOP = "3.5.0"
"""The version of PySpark's jars."""
SOURCE = Path(__file__).parent / "java" / "Yarn.java"
JARS = Path(pyspark.__file__).parent / "jars"
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "tidemill-tests"
FETCH_S = 300
STOP_S = 60
ALONE = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>tests</groupId><artifactId>jars</artifactId><version>1</version><dependencies>
<dependency><groupId>org.apache.hadoop</groupId><artifactId>hadoop-client-minicluster</artifactId>
<version>{HADOOP}</version>{ALONE}</dependency>
<dependency><groupId>org.junit.jupiter</groupId><artifactId>junit-jupiter-api</artifactId><version>5.8.2</version></dependency>
<dependency><groupId>org.bouncycastle</groupId><artifactId>bcpkix-jdk18on</artifactId><version>1.78.1</version></dependency>
</dependencies></project>"""


@contextmanager
def running_yarn(folder: Path) -> Iterator[Path]:
    """Run a YARN and return the folder of its settings. All its files are below `folder`."""
    jars = CACHE / f"hadoop-minicluster-{HADOOP}"
    if not jars.exists() and not _fetched(jars, folder):
        assert "CI" not in os.environ, "Hadoop's small cluster could not be had from Maven"
        pytest.skip("Hadoop's small cluster could not be had: install Maven and a JDK")
    settings = folder / "settings"
    settings.mkdir()
    words = ["java", "-Xmx512m", "-XX:+UseSerialGC", f"-Djava.io.tmpdir={folder}", "-cp", f"{jars}/*:{JARS}/*"]
    with (
        (folder / "said-yarn").open("w") as said,
        subprocess.Popen(
            [*words, str(SOURCE), str(settings)],
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=said,
            text=True,
        ) as run,
    ):
        assert run.stdout is not None
        try:
            assert any(line.strip() == "ready" for line in run.stdout), (folder / "said-yarn").read_text()[-4000:]
            yield settings
        finally:
            run.terminate()
            try:
                run.wait(STOP_S)
            except subprocess.TimeoutExpired:
                run.kill()


def _fetched(jars: Path, folder: Path) -> bool:
    if not shutil.which("mvn") or not shutil.which("java"):
        return False
    (folder / "pom.xml").write_text(POM)
    command = ["mvn", "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={folder}/jars"]
    if subprocess.run(command, cwd=folder, timeout=FETCH_S, check=False).returncode:
        return False
    shutil.copytree(folder / "jars", jars, dirs_exist_ok=True)
    return True
