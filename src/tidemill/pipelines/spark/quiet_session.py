"""A session whose log goes to a file.

Standard error must be redirected before the JVM starts, because the JVM keeps it.
"""

import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tidemill.pipelines.errors import PipelineError
from tidemill.pipelines.run.core.kubernetes import NAMESPACE, refusal, waiting
from tidemill.pipelines.run.core.master import KUBERNETES
from tidemill.pipelines.spark.session import session

LOG = "spark.log"
Say = Callable[[str], None]
_REASON = re.compile(r"(?:Exception|Error): (.+)")


@contextmanager
def quiet_session(
    master: str | None, name: str, folder: Path, settings: Mapping[str, str], say: Say, *, verbose: bool
) -> Iterator[SparkSession]:
    """A session for one command, stopped when the command ends. Spark's output is in the folder's spark.log."""
    log = folder / LOG
    log.parent.mkdir(parents=True, exist_ok=True)
    try:
        with nullcontext() if verbose else stderr_into(log):
            spark = session(master, name=name, options=dict(settings))
    except (Py4JError, PySparkException) as error:
        said = "" if verbose else f"; Spark's output is in {log}"
        reason = _reason(error, "" if verbose else log.read_text(encoding="utf-8", errors="replace"))
        raise PipelineError(f"Spark did not start on {master or 'this machine'}: {reason}{said}") from None
    if verbose:
        spark.sparkContext.setLogLevel("WARN")
    try:
        if master is not None and master.startswith(KUBERNETES):
            _report_no_executors(spark.sparkContext, say)
        yield spark
    finally:
        with suppress(OSError):  # the JVM may have ended
            spark.stop()


def _report_no_executors(context: SparkContext, say: Say) -> None:
    """Report that no executor has started. The session has waited half a minute, and would keep waiting silently."""
    known = context._jsc.sc().getExecutorMemoryStatus().size()  # noqa: SLF001 - PySpark has no public API for this
    if known <= 1:  # the count includes the driver
        say(waiting(context.getConf().get(NAMESPACE, "default"), context.applicationId))


def _reason(error: Exception, log: str) -> str:
    """Why the session did not start: the longest message of the JVM, or its last output before it ended."""
    if not isinstance(error, Py4JJavaError):
        found = _REASON.search(log)
        return found[1].strip() if found else str(error).splitlines()[0]
    messages, cause = [type(error).__name__], error.java_exception
    while cause is not None:
        messages.append((cause.getMessage() or "").partition("\n")[0])
        cause = cause.getCause()
    longest = max(messages, key=len)
    return refusal(longest) or longest


@contextmanager
def stderr_into(path: Path) -> Iterator[None]:
    """Redirect the standard error of this process, and of processes started meanwhile, to a file."""
    sys.stderr.flush()
    kept = os.dup(2)
    with path.open("wb") as file:
        os.dup2(file.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(kept, 2)
            os.close(kept)
