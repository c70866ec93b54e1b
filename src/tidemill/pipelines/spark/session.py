"""A local Spark session that starts quickly and says little."""

import os
import sys
from collections.abc import MutableMapping
from contextlib import nullcontext
from pathlib import Path

from pyspark.sql import SparkSession

from tidemill.pipelines import java
from tidemill.pipelines.spark.format import TidemillSource
from tidemill.pipelines.spark.jvm_cleanup import whole_or_gone
from tidemill.pipelines.spark.spark_home import PYTHON, quick_home

LOCAL = "127.0.0.1"
DRIVER_PYTHON = "PYSPARK_DRIVER_PYTHON"
SHUFFLES = "spark.sql.shuffle.partitions"
CLUSTER_SHUFFLES = "32"
"""Spark's own default is 200, and a streaming query with groups runs all of them in every micro-batch."""
SAME_PYTHON = ("local", "spark://")
"""Masters whose workers have Python where the driver has it."""
JAVA_OPTIONS = "spark.driver.extraJavaOptions"
STACK = "-Xss8m"
"""Spark matches regular expressions against the code that it makes, which overflows the usual stack of a thread."""
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
"""Without it Spark refuses the option pushFilters."""
ARROW_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
ARROW_BYTES_MAX = "1m"
"""What Spark hands to a sink at a time is then still in the processor's cache; Spark's own default is 64 MB."""
STOP_LIMIT = "60s"
"""How long `query.stop()` waits for a query that does not stop; Spark's own default is for ever."""
YARN_PATIENCE = "spark.hadoop.yarn.resourcemanager.connect.max-wait.ms"
"""YARN's own default for a resource manager that does not answer is 15 minutes."""
YARN_PATIENCE_MS = "20000"
CHECKPOINTS = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"


def session(
    master: str | None = None, *, name: str = "tidemill", options: dict[str, str] | None = None
) -> SparkSession:
    """A session in which format("tidemill") works; the one that runs already, if there is one.

    `master` is Spark's own (None: all cores of this machine); `options` are Spark settings that win over those here.
    """
    java.check()
    local = master is None or master.startswith("local")
    choose_python(master or "local", os.environ)
    cores = os.cpu_count() or 1
    builder = SparkSession.builder.appName(name).master(master or f"local[{cores}]")
    for key, value in _with_stack({**_settings(cores, local=local), **(options or {})}).items():
        builder = builder.config(key, value)
    with whole_or_gone(), quick_home() if local else nullcontext():
        spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    if spark.sparkContext.getConf().get(SHUFFLES) is None:  # neither here nor in the cluster's spark-defaults.conf
        spark.conf.set(SHUFFLES, CLUSTER_SHUFFLES)
    register(spark)
    return spark


def choose_python(master: str, environment: MutableMapping[str, str]) -> None:
    """Plan with this Python, and work with it where its place can be the same; what the user says stays.

    Spark would take the first python3 of the PATH, which may know nothing of Tidemill. Standalone clusters are machines
    set up alike. YARN and Kubernetes bring containers with a Python of their own, and Spark wants one name for it there
    and here: it stays `python3`, which is made to mean this one here.
    """
    given = environment.get(PYTHON)
    environment.setdefault(DRIVER_PYTHON, given or sys.executable)
    if given is None and master.startswith(SAME_PYTHON):
        environment[PYTHON] = sys.executable
    elif given is None:
        environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), environment.get("PATH", os.defpath)])


def register(spark: SparkSession) -> None:
    """Make format("tidemill") known to a session."""
    spark.dataSource.register(TidemillSource)


def _settings(cores: int, *, local: bool) -> dict[str, str]:
    settings = {
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.streaming.stopTimeout": STOP_LIMIT,
        PUSHDOWN: "true",
        ARROW_BYTES: ARROW_BYTES_MAX,
        YARN_PATIENCE: YARN_PATIENCE_MS,
    }
    if local:
        settings |= {
            "spark.ui.enabled": "false",
            "spark.driver.host": LOCAL,
            "spark.driver.bindAddress": LOCAL,
            JAVA_OPTIONS: "-XX:+UseSerialGC",
            SHUFFLES: str(cores),
            "spark.python.unix.domain.socket.enabled": "true",
            "spark.sql.streaming.checkpointFileManagerClass": CHECKPOINTS,
        }
    return settings


def _with_stack(settings: dict[str, str]) -> dict[str, str]:
    """With a large enough stack, whatever else is said to the JVM."""
    given = settings.get(JAVA_OPTIONS, "")
    return settings if "-Xss" in given else settings | {JAVA_OPTIONS: f"{given} {STACK}".strip()}
