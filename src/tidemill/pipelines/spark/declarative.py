"""The second runner: runs a pipeline once, as a graph of Spark Declarative Pipelines.

Views become temporary views of the graph, and sinks become its sinks. Spark plans the graph, runs independent flows in
parallel and retries failed ones. It keeps its own checkpoints, so a pipeline that changes its runner starts again from
the beginning. A graph writes by formats and in mode append, so only sinks of kind topic are supported.

At the end of a run, PySpark's own client (4.3) fails at a message that it does not know: the accumulators of Python
data sources. This module skips such messages. Views name each other in SQL as in the other runner, without STREAM(...).
To allow that, it disables a check of Spark.
"""

from collections.abc import Callable, Iterator
from typing import Any, cast

import pyspark.sql.connect.proto as messages
from pyspark import pipelines as graph_of
from pyspark.errors import PySparkException
from pyspark.pipelines.graph_element_registry import graph_element_registration_context
from pyspark.pipelines.spark_connect_graph_element_registry import SparkConnectGraphElementRegistry
from pyspark.pipelines.spark_connect_pipeline import create_dataflow_graph
from pyspark.sql import DataFrame, SparkSession

from tidemill.pipelines.errors import PipelineError
from tidemill.pipelines.spark.format import NAME
from tidemill.pipelines.spark.queries import line_of
from tidemill.pipelines.spark.topic import records_of
from tidemill.pipelines.spark.views import make_views
from tidemill.pipelines.spec.core.spec import Sink, WrongSpec
from tidemill.pipelines.spec.folder import Folder

STORAGE = "declarative"
TOPIC = "topic"
"""The only kind of sink that a graph supports."""
SETTINGS = {"pipelines.incompatibleViewCheck.enabled": "false"}
EVENT = "pipeline_event_result"
FAILED = "Error: "


def check_declarative(folder: Folder) -> None:
    """Refuse sinks that a graph does not support, before anything is started."""
    for sink in folder.spec.sinks:
        if sink.kind != TOPIC or sink.mode != "append":
            what = f"is of kind {sink.kind} in mode {sink.mode}"
            raise WrongSpec(
                f"{folder.root}: sinks.{sink.name} {what}; the declarative runner writes to topics in mode append"
            )


def run_declarative(spark: SparkSession, folder: Folder, say: Callable[[str], None]) -> None:
    """Run the graph once. `spark` is a Spark Connect session."""
    graph = create_dataflow_graph(spark, None, None, SETTINGS)
    with graph_element_registration_context(SparkConnectGraphElementRegistry(spark, graph)):
        _define(spark, folder)
    why = ""
    try:
        for message in _events(spark, graph, folder):
            why = next((line for line in message.splitlines() if line.startswith(FAILED)), why)
            say(message.splitlines()[0])
    except PySparkException as error:
        raise PipelineError(f"{folder.root}: {line_of(why.removeprefix(FAILED) or str(error))}") from None


def _define(spark: SparkSession, folder: Folder) -> None:
    views = make_views(spark, folder, f"{folder.spec.name}-{STORAGE}")
    for name, rows in views.items():
        graph_of.temporary_view(name=name)(_giving(rows))
    for sink in folder.spec.sinks:
        target = f"sink_{sink.name.replace('-', '_')}"
        options = {**folder.spec.kafka, "topic": sink.target}
        graph_of.create_sink(target, NAME, options)
        graph_of.append_flow(target=target, name=f"into_{target}")(_giving(_rows(views, sink)))


def _rows(views: dict[str, DataFrame], sink: Sink) -> DataFrame:
    return records_of(views[sink.view], sink)


def _giving(rows: DataFrame) -> Callable[[], Any]:
    """A function that returns the rows without evaluating them, as a graph requires."""
    return lambda: rows


def _events(spark: SparkSession, graph: str, folder: Folder) -> Iterator[str]:
    """Spark's messages about the run, until it has ended."""
    command = messages.Command()
    command.pipeline_command.start_run.CopyFrom(
        messages.PipelineCommand.StartRun(dataflow_graph_id=graph, storage=(folder.state / STORAGE).absolute().as_uri())
    )
    client = cast("Any", spark).client
    request = client._execute_plan_request_with_metadata()  # noqa: SLF001 - the public method fails, see above
    request.plan.command.CopyFrom(command)
    for answer in client._execute_and_fetch_as_iterator(request, {}):  # noqa: SLF001 - as above
        if isinstance(answer, dict) and EVENT in answer:
            yield str(answer[EVENT].event.message)
