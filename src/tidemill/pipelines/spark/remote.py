"""A session on a Spark Connect server, and the choice of the session for a command.

The server runs the queries and their Python code. It must reach this version of Tidemill, the broker and the pipeline's
folders under the same names as the client machine. Spark's output stays on the server.
"""

import logging
import os
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tidemill.pipelines.errors import PipelineError, WrongOption
from tidemill.pipelines.run import java
from tidemill.pipelines.run.core.kubernetes import IMAGE_ADVICE, IMAGES, without_image
from tidemill.pipelines.run.core.master import CONNECT, KUBERNETES, check_master, places_of
from tidemill.pipelines.spark.jvm_cleanup import kill_children_on_error
from tidemill.pipelines.spark.queries import line_of
from tidemill.pipelines.spark.quiet_session import LOG, Say, quiet_session, stderr_into
from tidemill.pipelines.spark.session import JAVA_OPTIONS, STACK, register
from tidemill.pipelines.spark.spark_home import HOME, PYTHON

CLIENT = {"grpc_status": "grpcio-status", "google.rpc": "googleapis-common-protos", "zstandard": "zstandard"}
SETTINGS = {"spark.sql.session.timeZone": "UTC"}
EMBEDDED = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    JAVA_OPTIONS: f"-XX:+UseSerialGC {STACK}",
}
"""Settings of a server that is started here for one command."""
ANSWER_S = 5.0
REPEATING_LOGGERS = (
    "DataFrameQueryContextLogger",
    "SQLQueryContextLogger",
    "clickhouse_connect.driver._backend.http_sync",
)
"""Loggers that repeat errors; PySpark repeats them as a page of JSON."""


@dataclass(frozen=True, slots=True)
class Where:
    """Which Spark to use: a master (None: this machine) or a Spark Connect server.

    `connect` requests a Spark Connect session in any case. Without an address, a server is started here. `settings`
    apply to a Spark that is started here.
    """

    master: str | None = None
    remote: str | None = None
    connect: bool = False
    settings: Mapping[str, str] = field(default_factory=dict)


@contextmanager
def session_for(where: Where, name: str, folder: Path, say: Say, *, verbose: bool) -> Iterator[SparkSession]:
    """A session for one command. The output of a local Spark is in the folder; `say` reports what it waits for."""
    for logger in REPEATING_LOGGERS:
        logging.getLogger(logger).disabled = not verbose
    try:
        with _session(where, name, folder, say, verbose=verbose) as spark:
            yield spark
    except (Py4JError, PySparkException) as error:  # errors without a more specific message
        raise PipelineError(line_of(str(error))) from None


@contextmanager
def _session(where: Where, name: str, folder: Path, say: Say, *, verbose: bool) -> Iterator[SparkSession]:
    if where.remote is None and not where.connect:
        with quiet_session(where.master, name, folder, where.settings, say, verbose=verbose) as spark:
            yield spark
        return
    spark = _connected(where.remote, name) if where.remote else _embedded(where, name, folder, verbose=verbose)
    try:
        yield spark
    finally:
        with suppress(OSError, PySparkException):  # the server may have ended
            spark.stop()


def check_where(where: Where) -> None:
    """Check the options before anything is started."""
    if where.remote is not None and where.master is not None:
        raise WrongOption("give --master or --remote, not both; the server has its own master")
    if where.remote is not None and where.settings:
        raise WrongOption("--conf is for a Spark that is started here; a Spark Connect server has its own settings")
    if where.master is not None:
        check_master(where.master, os.environ)
        _check_answers(where.master, "master")
        _check_image(where)
    if where.remote is None and not where.connect:
        return
    if where.remote is not None and not where.remote.startswith(CONNECT):
        raise WrongOption(f"--remote {where.remote} is not a Spark Connect address; write sc://host:15002")
    if where.remote is not None:
        _check_answers(where.remote, "Spark Connect server")
    missing = [package for module, package in CLIENT.items() if _missing(module)]
    if missing:
        raise PipelineError(f"Spark Connect needs {' and '.join(missing)}; run: pip install 'tidemill[spark]'")


def _check_image(where: Where) -> None:
    """Check for an image, because Spark without one would request executors forever, once a second."""
    kubernetes = where.master is not None and where.master.startswith(KUBERNETES)
    if kubernetes and without_image(where.settings, _defaults(os.environ)):
        raise WrongOption(f"--master {where.master} needs {IMAGES[0]}; set it to {IMAGE_ADVICE}")


def _defaults(environment: Mapping[str, str]) -> Iterator[str]:
    """The texts in which Spark finds settings that were not given here."""
    yield environment.get("PYSPARK_SUBMIT_ARGS", "")
    home = environment.get(HOME)
    folder = environment.get("SPARK_CONF_DIR") or (f"{home}/conf" if home else None)
    with suppress(OSError):
        yield "" if folder is None else (Path(folder) / "spark-defaults.conf").read_text(encoding="utf-8")


def _check_answers(url: str, what: str) -> None:
    """Check that the address accepts connections, because Spark itself would try for minutes."""
    why = ""
    for place in (places := places_of(url)):
        try:
            socket.create_connection(place, ANSWER_S).close()
        except OSError as error:
            why = f"{place[0]}:{place[1]}: {error.strerror or error}"
        else:
            return
    if places:
        raise PipelineError(
            f"no {what} answers at {url} ({why}); check that it runs and that this machine can reach it"
        )


def _missing(module: str) -> bool:
    try:
        return find_spec(module) is None
    except ModuleNotFoundError:
        return True


def _embedded(where: Where, name: str, folder: Path, *, verbose: bool) -> SparkSession:
    """A Spark Connect server in a JVM that ends with this process."""
    java.check()
    os.environ.setdefault(PYTHON, sys.executable)
    folder.mkdir(parents=True, exist_ok=True)
    with kill_children_on_error(), nullcontext() if verbose else stderr_into(folder / LOG):
        return _connected(where.master or "local[*]", name, {**EMBEDDED, **where.settings})


def _connected(url: str, name: str, options: Mapping[str, str] | None = None) -> SparkSession:
    builder = SparkSession.builder.appName(name).remote(url)
    for key, value in {**SETTINGS, **(options or {})}.items():
        builder = builder.config(key, value)
    try:
        spark = builder.getOrCreate()
        register(spark)
    except PySparkException as error:
        raise PipelineError(f"{url}: {line_of(str(error))}; check that a Spark Connect server runs there") from None
    return spark
