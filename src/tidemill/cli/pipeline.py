"""`tidemill pipeline`: creates, runs and monitors pipelines. Built-in pipelines: `pipeline_lake`, `pipeline_tables`."""

from pathlib import Path
from shlex import quote
from typing import Annotated, Any

import typer

from tidemill.cli.connection import DEFAULT_BOOTSTRAP, Bootstrap
from tidemill.cli.errors import CommandFailed, WrongUse
from tidemill.cli.options import Json, local_folder
from tidemill.cli.output import hint, remark, say, show, show_json
from tidemill.cli.pipeline_lake import archive, audit, compact, replay
from tidemill.cli.pipeline_options import (
    STARTING,
    Conf,
    Master,
    Remote,
    Verbose,
    check_libraries,
    chosen_spark,
    existing_timelines,
    existing_topics,
    sole_writer,
)
from tidemill.cli.pipeline_tables import latest, report

app = typer.Typer(help="Run pipelines on Spark; archive topics and replay them.", no_args_is_help=True)

Folder = Annotated[Path, typer.Argument(metavar="FOLDER", parser=local_folder, help="Folder of the pipeline.")]
STREAMING, DECLARATIVE = RUNNERS = ("streaming", "declarative")
STATUS_COLUMNS = ("pipeline", "state", "sink", "rows", "rows/s", "lag", "lag_s", "broken", "updated")


@app.command()
def init(folder: Folder, bootstrap: Bootstrap = None) -> None:
    """Create a folder with a small working pipeline.

    Example: tidemill pipeline init shop
    """
    check_libraries()
    from tidemill.pipelines.spec.example import write_example

    for path in write_example(folder, bootstrap or DEFAULT_BOOTSTRAP):
        say(f"wrote {path}")
    order = '{"item": "tea", "price": 2.5, "quantity": 4}'
    remark("try it:  tidemill topic create orders --if-not-exists")
    remark(f"         tidemill produce orders --message '{order}'")
    remark(f"         tidemill pipeline run {quote(str(folder))} --once")
    remark("         tidemill consume revenue --from-beginning -n 1")


@app.command()
def run(
    folder: Folder,
    once: Annotated[bool, typer.Option("--once", help="Stop after the records that exist now.")] = False,
    append: Annotated[
        bool, typer.Option("--append", help="Append to lakes with rows that the checkpoint does not know.")
    ] = False,
    master: Master = None,
    remote: Remote = None,
    conf: Conf = None,
    runner: Annotated[
        str, typer.Option(help="streaming, or declarative: Spark Declarative Pipelines, once, topics only.")
    ] = STREAMING,
    verbose: Verbose = False,
) -> None:
    """Run a pipeline until Ctrl-C. The next run continues where this one stopped.

    Example: tidemill pipeline run shop --once
    """
    if runner not in RUNNERS:
        raise WrongUse(f"there is no runner {runner}; use one of {', '.join(RUNNERS)}")
    check_libraries()
    from tidemill.pipelines.run.core.pipeline_facts import pipeline_facts
    from tidemill.pipelines.run.lock import hold
    from tidemill.pipelines.run.pipeline_reporter import PipelineReporter
    from tidemill.pipelines.run.runner import Reports, orderly, tend
    from tidemill.pipelines.run.status import Reporter, wall_ms
    from tidemill.pipelines.sink.registry import sink_types, writer_of
    from tidemill.pipelines.spec.loading import load

    types = sink_types()
    loaded = load(folder, types)
    where = chosen_spark(master, remote, conf, connect=runner == DECLARATIVE, settings=loaded.spec.spark)
    existing_topics(loaded.spec.reached, [source.topic for source in loaded.spec.sources])
    timed = [sink.target for sink in loaded.spec.sinks if types[sink.kind].is_timeline]
    existing_timelines(loaded.spec.timelines, timed, loaded.spec.client)
    from tidemill.pipelines.spark.remote import session_for
    from tidemill.pipelines.spark.sinks import start_pipeline

    if runner == DECLARATIVE:
        from tidemill.pipelines.spark.declarative import check_declarative, run_declarative

        check_declarative(loaded)
    reporter = Reporter(loaded, remark, wall_ms)
    facts = pipeline_facts(loaded.spec, loaded.steps)
    hint(STARTING)
    with (
        hold(loaded.state / "lock", str(folder)),
        sole_writer([folder / sink.target for sink in loaded.spec.sinks if types[sink.kind].is_lake]),
        orderly() as heed,
        PipelineReporter(facts, loaded.spec.reached.options, remark, wall_ms) as to_broker,
        reporter,
        session_for(where, loaded.spec.name, loaded.state, remark, verbose=verbose) as spark,
    ):
        if runner == DECLARATIVE:
            to_broker.publish("running")
            run_declarative(spark, loaded, remark)
        else:

            def take(reports: Reports) -> None:
                reporter(reports)
                to_broker.take(reports)

            stop, queries = heed(), start_pipeline(spark, loaded, writer_of, say, once=once, append=append)
            hint(f"{loaded.spec.name} runs, with a line for each micro-batch; Ctrl-C stops it")
            tend(queries, stop, take)


@app.command()
def check(folder: Folder, as_json: Json = False) -> None:
    """Read a pipeline and its files, and show its parts. Nothing is started.

    Example: tidemill pipeline check shop
    """
    check_libraries()
    from tidemill.pipelines.sink.registry import sink_types
    from tidemill.pipelines.spec.loading import load

    loaded = load(folder, sink_types())
    rows: list[dict[str, Any]] = [
        *({"part": "source", "name": each.name, "reads": f"topic {each.topic}"} for each in loaded.spec.sources),
        *(
            {"part": "transformation", "name": step.transformation.name, "reads": ", ".join(step.reads)}
            for step in loaded.steps
        ),
        *(
            {"part": f"sink {each.kind}", "name": each.name, "reads": each.view, "writes": each.target or None}
            for each in loaded.spec.sinks
        ),
    ]
    show(rows, ("part", "name", "reads", "writes"), as_json=as_json)


@app.command()
def status(
    folder: Annotated[
        Path, typer.Argument(metavar="[FOLDER]", parser=local_folder, help="A pipeline, or a folder of pipelines.")
    ] = Path(),
    as_json: Json = False,
) -> None:
    """Show rows per second, lag in records and seconds, broken expectations and the last error.

    Example: tidemill pipeline status shop
    """
    check_libraries()
    from tidemill.pipelines.run.status import status_of, wall_ms
    from tidemill.pipelines.spec.folder import pipelines_in

    found = {path: status_of(path, wall_ms()) for path in pipelines_in(folder)}
    if not found:
        raise CommandFailed(f"there is no pipeline in {folder}; create one with: tidemill pipeline init shop")
    statuses = [{"folder": str(path), **kept} for path, kept in found.items() if kept is not None]
    if as_json:
        show_json(statuses)
        return
    rows = [row for each in statuses for row in _rows(each)]
    if rows:
        show(rows, STATUS_COLUMNS, as_json=False)
    for path in (path for path, kept in found.items() if kept is None):
        remark(f"{path} has never run; start it with: tidemill pipeline run {quote(str(path))}")
    for each in statuses:
        if each["error"]:
            say(f"last error of {each['pipeline']}: {each['error']}")


for command in (archive, audit, compact, replay, latest, report):
    app.command()(command)


def _rows(status_: dict[str, Any]) -> list[dict[str, Any]]:
    from tidemill.pipelines.run.core.progress import time_text

    return [
        {
            "pipeline": status_["pipeline"],
            "state": status_["state"],
            "sink": sink["sink"],
            "rows": sink["rows"],
            "rows/s": sink["rows_per_s"],
            "lag": sink["lag_records"],
            "lag_s": sink["lag_s"],
            "broken": ", ".join(f"{name} {count}" for name, count in sink["broken"].items() if count) or None,
            "updated": time_text(status_["updated_ms"]),
        }
        for sink in status_["sinks"]
    ]
