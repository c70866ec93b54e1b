"""A local Spark session that starts quickly and says little."""

import os
import shutil
import sys
from contextlib import nullcontext
from pathlib import Path

from pyspark.sql import SparkSession

from tidemill.pipelines.core.errors import PipelineError
from tidemill.pipelines.spark.format import TidemillSource
from tidemill.pipelines.spark.home import PYTHON, quick_home

LOCAL = "127.0.0.1"
JAVA_OPTIONS = "spark.driver.extraJavaOptions"
STACK = "-Xss8m"
"""Spark matches regular expressions against the code that it makes, which overflows the usual stack of a thread."""
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
"""Without it Spark refuses the option pushFilters."""
STOP_LIMIT = "60s"
"""How long `query.stop()` waits for a query that does not stop; Spark's own default is for ever."""
CHECKPOINTS = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
JAVA_ADVICE = "Spark needs Java 17 or newer: apt-get install openjdk-17-jre-headless, or set JAVA_HOME to one"


class JavaMissing(PipelineError):
    """There is no Java to run Spark with."""


def session(
    master: str | None = None, *, name: str = "tidemill", options: dict[str, str] | None = None
) -> SparkSession:
    """A session in which format("tidemill") works; the one that runs already, if there is one.

    `master` is Spark's own (None: all cores of this machine); `options` are Spark settings that win over those here.
    """
    check_java()
    local = master is None or master.startswith("local")
    if local:  # Spark would take the first python3 of the PATH, which may know nothing of Tidemill
        os.environ.setdefault(PYTHON, sys.executable)
    cores = os.cpu_count() or 1
    builder = SparkSession.builder.appName(name).master(master or f"local[{cores}]")
    for key, value in _with_stack({**_settings(cores, local=local), **(options or {})}).items():
        builder = builder.config(key, value)
    with quick_home() if local else nullcontext():
        spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    register(spark)
    return spark


def register(spark: SparkSession) -> None:
    """Make format("tidemill") known to a session."""
    spark.dataSource.register(TidemillSource)


def check_java() -> None:
    """Say in one line that Java is missing, before Spark says it in fifty."""
    home = os.environ.get("JAVA_HOME")
    if home:
        if not (Path(home) / "bin" / "java").exists():
            raise JavaMissing(f"JAVA_HOME is {home}, where there is no bin/java; {JAVA_ADVICE}")
    elif shutil.which("java") is None:
        raise JavaMissing(f"there is no java on the PATH; {JAVA_ADVICE}")


def _settings(cores: int, *, local: bool) -> dict[str, str]:
    settings = {
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.streaming.stopTimeout": STOP_LIMIT,
        PUSHDOWN: "true",
    }
    if local:
        settings |= {
            "spark.ui.enabled": "false",
            "spark.driver.host": LOCAL,
            "spark.driver.bindAddress": LOCAL,
            JAVA_OPTIONS: "-XX:+UseSerialGC",
            "spark.sql.shuffle.partitions": str(cores),
            "spark.python.unix.domain.socket.enabled": "true",
            "spark.sql.streaming.checkpointFileManagerClass": CHECKPOINTS,
        }
    return settings


def _with_stack(settings: dict[str, str]) -> dict[str, str]:
    """With a large enough stack, whatever else is said to the JVM."""
    given = settings.get(JAVA_OPTIONS, "")
    return settings if "-Xss" in given else settings | {JAVA_OPTIONS: f"{given} {STACK}".strip()}
