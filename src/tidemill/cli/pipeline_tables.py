"""`tidemill pipeline latest`, `report`: writes topics into tables, and plots of them."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidemill.cli.connection import Bootstrap, Client, admin, answer, no_topic
from tidemill.cli.durations import moment_ms
from tidemill.cli.errors import CommandFailed, WrongUse
from tidemill.cli.options import Json, local_folder
from tidemill.cli.output import hint, progress, remark, say, show, show_json
from tidemill.cli.pipeline_lake import batch_reporter, broker_reporter
from tidemill.cli.pipeline_options import (
    STARTING,
    Conf,
    Follow,
    LakeFormat,
    Master,
    Remote,
    SkipLost,
    Verbose,
    chosen_spark,
    existing_topics,
    known_topics,
    lake_for,
    lake_session,
    pipeline_broker,
)

if TYPE_CHECKING:
    from tidemill.pipelines.run.core.report import TrafficReport
    from tidemill.pipelines.run.runner import Reports
    from tidemill.pipelines.spec.core.broker import KafkaBroker

TOPIC_COLUMNS = ("topic", "records", "bytes", "records/s", "peak/s", "newest")
GROUP_COLUMNS = ("group", "topic", "lag", "lag_s")
SPARK_LOG = ".spark"


def latest(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Changelog topic: the newest record of a key is kept.")],
    to: Annotated[
        Path,
        typer.Option(metavar="FOLDER", parser=local_folder, help="Folder of the tables. The topic gets a subfolder."),
    ],
    format_: LakeFormat = "parquet",
    schema: Annotated[
        str | None, typer.Option(metavar="COLUMNS", help="Columns of JSON values: 'item string, price double'.")
    ] = None,
    follow: Follow = False,
    skip_lost: SkipLost = False,
    master: Master = None,
    remote: Remote = None,
    conf: Conf = None,
    verbose: Verbose = False,
    bootstrap: Bootstrap = None,
    client: Client = None,
    as_json: Json = False,
) -> None:
    """Keep a table with the newest record of each key of a topic. A record without a value deletes its key.

    Example: tidemill pipeline latest prices --to tables/ --schema 'item string, price double'
    """
    where = chosen_spark(master, remote, conf)
    from tidemill.pipelines.run.core.pipeline_facts import copy_facts
    from tidemill.pipelines.run.core.progress import keyless
    from tidemill.pipelines.run.runner import orderly, tend
    from tidemill.pipelines.spark.latest import Latest, latest_group, start_latest

    broker = pipeline_broker(bootstrap, client)
    existing_topics(broker, [topic])
    table = lake_for(to / topic, format_)
    left_out = 0
    with (
        orderly() as heed,
        lake_session(where, table, f"latest {topic}", verbose=verbose) as spark,
        progress("reading", None) as advance,
        broker_reporter(copy_facts("latest", topic, str(to / topic), latest_group(topic)), broker) as to_broker,
    ):
        stop, shown = heed(), batch_reporter(advance, follow=follow and not as_json)

        def show_batch(reports: "Reports") -> None:
            nonlocal left_out
            left_out += sum(map(keyless, reports.values()))
            shown(reports)
            to_broker.take(reports)

        tend(start_latest(spark, table, Latest(broker, topic, schema, follow, skip_lost)), stop, show_batch)
    rows = sum(file.rows for file in table.files())
    if as_json:
        found = {"topic": topic, "table": str(to / topic), "format": format_, "rows": rows, "without_key": left_out}
        show_json(found)
        return
    say(f"{to / topic} has {rows:,} keys of {topic}")
    if left_out:
        remark(
            f"left out without a key: {left_out:,} record{'s' if left_out != 1 else ''}; "
            f"to keep every record: tidemill pipeline archive {topic} --to FOLDER"
        )
    elif not rows:
        remark(f"no record of {topic} has a key, or records without a value deleted all keys")


def report(
    to: Annotated[Path, typer.Option(metavar="FOLDER", parser=local_folder, help="Folder for tables and plots.")],
    topics: Annotated[str | None, typer.Option(metavar="NAME,NAME", help="Topics to report. Default: all.")] = None,
    since: Annotated[str, typer.Option(metavar="TIME", help="Start of the report: 1h ago, 2026-11-01.")] = "1h ago",
    plots: Annotated[bool, typer.Option(help="Draw throughput.png and lag.png.")] = True,
    master: Master = None,
    remote: Remote = None,
    conf: Conf = None,
    verbose: Verbose = False,
    bootstrap: Bootstrap = None,
    client: Client = None,
    as_json: Json = False,
) -> None:
    """Report traffic and lag: a table on the screen, Parquet and CSV files, and plots.

    Example: tidemill pipeline report --topics orders,clicks --since 2h --to report/
    """
    where = chosen_spark(master, remote, conf)
    from tidemill.pipelines.run.report_files import write_tables
    from tidemill.pipelines.spark.remote import session_for

    since_ms = moment_ms(since)
    if to.exists() and not to.is_dir():
        raise WrongUse(f"--to {to} is a file; name a folder")
    broker = pipeline_broker(bootstrap, client)
    wanted = _topics(broker, topics)
    to.mkdir(parents=True, exist_ok=True)
    hint(STARTING)
    with session_for(where, "report", to / SPARK_LOG, remark, verbose=verbose) as spark:
        made = gathered(spark, broker, wanted, since_ms)
    files = write_tables(made, to)
    if plots:
        from tidemill.pipelines.run.plots import draw

        files += draw(made, to)
    _print_report(made, files, as_json=as_json)


def _topics(broker: "KafkaBroker", given: str | None) -> list[str]:
    """The named topics, or all."""
    wanted = [name.strip() for name in (given or "").split(",") if name.strip()]
    if given is not None and not wanted:
        raise WrongUse("--topics names no topic; write for example --topics orders,clicks")
    known = [name for name in known_topics(broker) if not name.startswith("__")]
    if not known:
        raise CommandFailed(f"{broker.servers} has no topics yet; there is nothing to report")
    for name in wanted:
        if name not in known:
            raise no_topic(name)
    return wanted or known


def gathered(spark: Any, broker: "KafkaBroker", topics: list[str], since_ms: int) -> "TrafficReport":
    """Collect traffic with Spark and lag from the broker."""
    import time

    from tidemill.client.kafka import KafkaClient
    from tidemill.pipelines.run.core.report import TrafficReport, step_s
    from tidemill.pipelines.run.lag import lags_of
    from tidemill.pipelines.spark.traffic import Traffic, traffic

    now_ms = time.time_ns() // 1_000_000
    client = admin(broker)
    groups = [each.group_id for each in answer(client.list_consumer_groups(), "list groups").valid]
    step = step_s(max(1, now_ms - since_ms))
    rows = traffic(spark, Traffic(broker, topics, since_ms, step)).to_pylist()
    with KafkaClient(broker.options) as raw:
        lags = lags_of(raw, groups, set(topics), now_ms)
    return TrafficReport(since_ms, now_ms, step, rows, tuple(lags))


def _print_report(made: "TrafficReport", files: list[Path], *, as_json: bool) -> None:
    from tidemill.pipelines.run.core.progress import time_text

    topics = [
        {
            "topic": each.topic,
            "records": each.records,
            "bytes": each.bytes,
            "records/s": each.records_per_s,
            "peak/s": each.peak_per_s,
            "newest": time_text(each.newest_ms),
        }
        for each in made.topics
    ]
    if as_json:
        show_json({"topics": topics, "groups": made.groups(), "files": [str(file) for file in files]})
        return
    show(topics, TOPIC_COLUMNS, as_json=False, empty="no records in this time")
    show(made.groups(), GROUP_COLUMNS, as_json=False, empty="no group has committed offsets of these topics")
    for file in files:
        remark(f"wrote {file}")
