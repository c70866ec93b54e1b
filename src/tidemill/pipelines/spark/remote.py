"""A session on a Spark Connect server, and which kind of session a command gets.

The server runs the queries and their Python: it must find this version of Tidemill, the broker and the folders of the
pipeline under the same names as the machine that asks. What Spark says stays on the server.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tidemill.pipelines.core.errors import PipelineError, WrongOption
from tidemill.pipelines.spark.queries import line_of
from tidemill.pipelines.spark.quiet import quiet_session
from tidemill.pipelines.spark.session import register

SCHEME = "sc://"
CLIENT = {"grpc_status": "grpcio-status", "google.rpc": "googleapis-common-protos"}
SETTINGS = {"spark.sql.session.timeZone": "UTC"}


@dataclass(frozen=True, slots=True)
class Where:
    """Which Spark: a master (None: this machine), or a Spark Connect server."""

    master: str | None = None
    remote: str | None = None


@contextmanager
def session_for(where: Where, name: str, folder: Path, *, verbose: bool) -> Iterator[SparkSession]:
    """A session for one command; what a Spark of its own says is in the folder."""
    if where.remote is None:
        with quiet_session(where.master, name, folder, verbose=verbose) as spark:
            yield spark
        return
    spark = _connected(where.remote, name)
    try:
        yield spark
    finally:
        spark.stop()


def check_where(where: Where) -> None:
    """Say what is wrong before anything is started."""
    if where.remote is None:
        return
    if where.master is not None:
        raise WrongOption("give --master or --remote, not both: the server knows its own master")
    if not where.remote.startswith(SCHEME):
        raise WrongOption(f"--remote is {where.remote}; write sc://host:15002, the address of a Spark Connect server")
    missing = [package for module, package in CLIENT.items() if _missing(module)]
    if missing:
        raise PipelineError(f"Spark Connect needs {' and '.join(missing)}: pip install 'tidemill[spark]'")


def _missing(module: str) -> bool:
    try:
        return find_spec(module) is None
    except ModuleNotFoundError:
        return True


def _connected(url: str, name: str) -> SparkSession:
    builder = SparkSession.builder.appName(name).remote(url)
    for key, value in SETTINGS.items():
        builder = builder.config(key, value)
    try:
        spark = builder.getOrCreate()
        register(spark)
    except PySparkException as error:
        raise PipelineError(f"{url}: {line_of(str(error))}; is a Spark Connect server there?") from None
    return spark
