"""`tidemill pipeline archive`, `audit`, `replay`: topics into lakes and back."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidemill.cli.connection import DEFAULT_BOOTSTRAP, Bootstrap, Json, admin, answer, no_topic, reach, told
from tidemill.cli.moments import moment_ms
from tidemill.cli.output import progress, remark, say, show, show_json
from tidemill.cli.problem import CommandFailed

if TYPE_CHECKING:
    from tidemill.pipelines.lake.audit import Audit
    from tidemill.pipelines.runner import Reports

Folder = Annotated[Path, typer.Argument(metavar="LAKE", help="Folder of the lake, such as lake/orders.")]
Master = Annotated[
    str | None, typer.Option(metavar="URL", help="Spark's master: local[4], spark://..., yarn, k8s://...")
]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Show what Spark says.")]
AUDIT_COLUMNS = ("partition", "rows", "first", "last", "missing", "doubled", "verdict")


def archive(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Topic to archive.")],
    to: Annotated[Path, typer.Option(metavar="FOLDER", help="Where lakes are; the topic gets a folder of its own.")],
    format_: Annotated[str, typer.Option("--format", "-f", help="parquet, delta or iceberg.")] = "parquet",
    follow: Annotated[bool, typer.Option(help="Go on as the topic grows, until Ctrl-C.")] = False,
    master: Master = None,
    verbose: Verbose = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Copy a topic into a lake, every record once, in folders by day; run it again to go on.

    Example: tidemill pipeline archive orders --to lake/
    """
    needs_spark()
    from tidemill.pipelines.lake.opening import open_lake
    from tidemill.pipelines.runner import interruptible, tend
    from tidemill.pipelines.spark.archive import Archive, start_archive
    from tidemill.pipelines.spark.quiet import quiet_session

    _existing_topic(bootstrap, topic)
    lake = open_lake(to / topic, format_)
    before = sum(file.rows for file in lake.files())
    with (
        quiet_session(master, f"archive {topic}", lake.root / "_spark", verbose=verbose) as spark,
        interruptible() as stop,
    ):
        report = _tell if follow and not as_json else _tell_nothing
        tend(start_archive(spark, lake, Archive(bootstrap, topic, follow)), stop, report)
    rows = sum(file.rows for file in lake.files())
    if as_json:
        show_json({"topic": topic, "lake": str(to / topic), "format": format_, "added": rows - before, "rows": rows})
    else:
        say(f"archived {rows - before:,} records of {topic}; {to / topic} has {rows:,}")


def audit(
    lake: Folder,
    against: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Ask this broker whether holes are lost records.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Prove that a lake has every offset of its topic once; exit code 1 if it has not.

    Example: tidemill pipeline audit lake/orders
    """
    from tidemill.client.raw import RawClient
    from tidemill.pipelines.lake.audit import audit as look
    from tidemill.pipelines.lake.audit import lost, told_by
    from tidemill.pipelines.lake.opening import existing_lake

    found = look(existing_lake(lake))
    losses = None
    if against is not None:
        reach(against)
        with RawClient({"bootstrap.servers": against}) as client:
            losses = lost(client, lake.absolute().name, found.verdicts)
    rows: list[dict[str, Any]] = [
        {name: getattr(verdict, name) for name in AUDIT_COLUMNS[:-1]} | {"verdict": told_by(verdict, losses)}
        for verdict in found.verdicts
    ]
    _tell_audit(found, rows, lake, as_json=as_json)


def replay(
    lake: Folder,
    to: Annotated[str, typer.Option(metavar="TOPIC", help="Topic to write to; made if it is not there.")],
    rate: Annotated[
        int | None, typer.Option(help="Records per second; as fast as it goes if not given.", min=1)
    ] = None,
    since: Annotated[
        str | None, typer.Option("--from", metavar="TIME", help="Only records from then on: 2026-11-01, or 2h ago.")
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Write the records of a lake to a topic, with their keys, headers and timestamps.

    Example: tidemill pipeline replay lake/orders --to orders-again --rate 10000
    """
    from tidemill.client.raw import RawClient
    from tidemill.pipelines.lake.opening import existing_lake
    from tidemill.pipelines.lake.replay import Replay, Wanted

    wanted = Wanted(to, None if since is None else moment_ms(since), rate)
    found = existing_lake(lake)
    reach(bootstrap)
    with RawClient({"bootstrap.servers": bootstrap}) as client:
        run = Replay(client, found, wanted)
        _make_topic(bootstrap, to, run.partitions)
        with progress("replaying", run.rows) as advance:
            rows = run.run(advance)
    if as_json:
        show_json({"lake": str(lake), "topic": to, "rows": rows})
    else:
        say(f"replayed {rows:,} records of {lake} to {to}")


def needs_spark() -> None:
    """Say in one line that the extra is not installed."""
    from importlib.util import find_spec

    missing = [name for name in ("pyspark", "pyarrow", "yaml") if find_spec(name) is None]
    if missing:
        raise CommandFailed(f"pipelines need {missing[0]}: pip install 'tidemill[spark]'")


def _tell(reports: "Reports") -> None:
    for name, batches in reports.items():
        for batch in batches:
            if batch["numInputRows"]:
                remark(f"{batch['timestamp'][11:19]}  {name}  {batch['numInputRows']:,} records")


def _tell_nothing(reports: "Reports") -> None:
    del reports


def _tell_audit(found: "Audit", rows: list[dict[str, Any]], lake: Path, *, as_json: bool) -> None:
    wrong = [row for row in rows if row["verdict"] not in {"contiguous", "complete"}]
    if as_json:
        show_json({"lake": str(lake), "ok": not wrong and not found.strays, "partitions": rows, "strays": found.strays})
    else:
        show(rows, AUDIT_COLUMNS, as_json=False, empty=f"{lake} has no rows yet")
    if found.strays:
        raise CommandFailed(f"{found.strays[0]} in {lake} is of no commit; {len(found.strays)} such files")
    if wrong:
        worst = wrong[0]
        advice = "; markers and aborted records leave holes too: ask with --against HOST:PORT"
        raise CommandFailed(
            f"partition {worst['partition']} of {lake}: {worst['missing']} offsets missing, {worst['doubled']} doubled"
            + (advice if worst["verdict"] == "holes" else "")
        )


def _existing_topic(bootstrap: str, topic: str) -> None:
    client = admin(bootstrap)
    with told("list topics"):
        if topic not in client.list_topics().topics:
            raise no_topic(topic)


def _make_topic(bootstrap: str, topic: str, partitions: int) -> None:
    from confluent_kafka.admin import NewTopic

    client = admin(bootstrap)
    with told("list topics"):
        known = client.list_topics().topics
    if topic not in known:
        answer(client.create_topics([NewTopic(topic, partitions)])[topic], f"create {topic}")
