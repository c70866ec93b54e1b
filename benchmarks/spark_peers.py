"""Spark's own kafka connector, from Maven if available: the peer of the Spark benchmarks."""

import shutil
import subprocess
import tempfile
from pathlib import Path

import pyspark

from benchmarks.peers import CACHE

SCALA = "2.13"
FALLBACK = "4.2.0"
"""Not every mirror has every version; this connector also runs on Spark 4.3."""
TOKENS = "4.0.0"
"""The part for Hadoop's tokens is not used here, but it depends on Kafka's own client."""
NEEDED = ("kafka", "commons-pool2")


def connector_jars() -> list[str]:
    """The jars of the connector. Prints a line and returns none when Maven does not provide them."""
    for version in dict.fromkeys((pyspark.__version__, FALLBACK)):
        folder = CACHE / f"spark-kafka-{version}"
        if folder.exists() or _copied(version, folder):
            print(f"Spark's kafka connector: {version}, on Spark {pyspark.__version__}")
            return sorted(str(jar) for jar in folder.glob("*.jar") if any(part in jar.name for part in NEEDED))
    print("Spark's kafka connector: skipped (needs mvn, and Maven's registry)")
    return []


def _copied(version: str, folder: Path) -> bool:
    if not shutil.which("mvn"):
        return False
    with tempfile.TemporaryDirectory() as work:
        Path(work, "pom.xml").write_text(_pom(version))
        command = ["mvn", "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={work}/jars"]
        if subprocess.run(command, cwd=work, capture_output=True, check=False).returncode:
            return False
        folder.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(f"{work}/jars", folder)
    return True


def _pom(version: str) -> str:
    return f"""<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>bench</groupId><artifactId>connector</artifactId><version>1</version><dependencies><dependency>
<groupId>org.apache.spark</groupId><artifactId>spark-sql-kafka-0-10_{SCALA}</artifactId><version>{version}</version>
<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>
</dependency><dependency>
<groupId>org.apache.spark</groupId><artifactId>spark-token-provider-kafka-0-10_{SCALA}</artifactId><version>{TOKENS}</version>
</dependency><dependency>
<groupId>org.apache.commons</groupId><artifactId>commons-pool2</artifactId><version>2.12.0</version>
</dependency></dependencies></project>"""
