"""Starts a Spark session with format("tidemill"), set up to start quickly and log little."""

import os
import sys
from collections.abc import MutableMapping
from contextlib import nullcontext
from pathlib import Path

from pyspark.sql import SparkSession

from tidemill.pipelines.run import java
from tidemill.pipelines.spark.format import TidemillSource
from tidemill.pipelines.spark.jvm_cleanup import kill_children_on_error
from tidemill.pipelines.spark.spark_home import PYTHON, quick_home

LOCAL = "127.0.0.1"
DRIVER_PYTHON = "PYSPARK_DRIVER_PYTHON"
SHUFFLES = "spark.sql.shuffle.partitions"
CLUSTER_SHUFFLES = "32"
"""Spark's default is 200, and a streaming query with groups runs all of them in every micro-batch."""
SAME_PYTHON = ("local", "spark://")
"""Masters whose workers have Python at the same path as the driver."""
JAVA_OPTIONS = "spark.driver.extraJavaOptions"
STACK = "-Xss8m"
"""Spark matches regular expressions against its generated code, which overflows the default stack of a thread."""
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
"""Without it Spark refuses the option pushFilters."""
ARROW_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
ARROW_BYTES_MAX = "1m"
"""A batch of this size for a sink is still in the processor's cache. Spark's default is 64 MB."""
STOP_LIMIT = "60s"
"""How long `query.stop()` waits for a query that does not stop. Spark's default is forever."""
YARN_PATIENCE = "spark.hadoop.yarn.resourcemanager.connect.max-wait.ms"
"""YARN's default for a resource manager that does not answer is 15 minutes."""
YARN_PATIENCE_MS = "20000"
CHECKPOINTS = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"


def session(
    master: str | None = None, *, name: str = "tidemill", options: dict[str, str] | None = None
) -> SparkSession:
    """A session in which format("tidemill") works; the running one, if there is one.

    `master` is Spark's own (None: all cores of this machine). `options` are Spark settings that override those here.
    """
    java.check()
    local = master is None or master.startswith("local")
    choose_python(master or "local", os.environ)
    cores = os.cpu_count() or 1
    builder = SparkSession.builder.appName(name).master(master or f"local[{cores}]")
    for key, value in _with_stack({**_settings(cores, local=local), **(options or {})}).items():
        builder = builder.config(key, value)
    with kill_children_on_error(), quick_home() if local else nullcontext():
        spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    if spark.sparkContext.getConf().get(SHUFFLES) is None:  # neither here nor in the cluster's spark-defaults.conf
        spark.conf.set(SHUFFLES, CLUSTER_SHUFFLES)
    register(spark)
    return spark


def choose_python(master: str, environment: MutableMapping[str, str]) -> None:
    """Use this Python for the driver, and for workers that have it at the same path.

    The user's choice takes precedence.

    Spark would use the first python3 of the PATH, which may not have Tidemill. Machines of standalone clusters are set
    up alike. Containers of YARN and Kubernetes have a Python of their own, and Spark requires the same name there and
    here. So the name stays `python3`, and the PATH here makes it this Python.
    """
    given = environment.get(PYTHON)
    environment.setdefault(DRIVER_PYTHON, given or sys.executable)
    if given is None and master.startswith(SAME_PYTHON):
        environment[PYTHON] = sys.executable
    elif given is None:
        environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), environment.get("PATH", os.defpath)])


def register(spark: SparkSession) -> None:
    """Register format("tidemill") with a session."""
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
    """Add a large enough stack to the given JVM options."""
    given = settings.get(JAVA_OPTIONS, "")
    return settings if "-Xss" in given else settings | {JAVA_OPTIONS: f"{given} {STACK}".strip()}
