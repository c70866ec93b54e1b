"""A session whose noise goes to a file: the JVM keeps the standard error that it is born with."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pyspark.sql import SparkSession

from tidemill.pipelines.spark.session import session

LOG = "spark.log"


@contextmanager
def quiet_session(master: str | None, name: str, folder: Path, *, verbose: bool) -> Iterator[SparkSession]:
    """A session for one command, stopped when the command is done; what Spark says is in the folder's spark.log."""
    if verbose:
        spark = session(master, name=name)
        spark.sparkContext.setLogLevel("WARN")
    else:
        folder.mkdir(parents=True, exist_ok=True)
        with stderr_into(folder / LOG):
            spark = session(master, name=name)
    try:
        yield spark
    finally:
        with suppress(OSError):  # a JVM that is gone has stopped
            spark.stop()


@contextmanager
def stderr_into(path: Path) -> Iterator[None]:
    """While this lasts, processes that are started write their standard error to a file."""
    sys.stderr.flush()
    kept = os.dup(2)
    with path.open("wb") as file:
        os.dup2(file.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(kept, 2)
            os.close(kept)
