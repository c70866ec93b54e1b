"""`tidemill pipeline archive`, `audit`, `compact`, `replay`: copies topics into lakes and back."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidemill.cli.connection import Bootstrap, Client, admin, answer, reach
from tidemill.cli.durations import moment_ms
from tidemill.cli.errors import CommandFailed
from tidemill.cli.options import Json, local_folder
from tidemill.cli.output import Advance, progress, remark, say, show, show_json
from tidemill.cli.pipeline_options import (
    LOCK,
    Conf,
    Follow,
    LakeFormat,
    Master,
    Remote,
    SkipLost,
    Verbose,
    check_libraries,
    chosen_spark,
    existing_topics,
    known_topics,
    lake_for,
    lake_session,
    pipeline_broker,
)

if TYPE_CHECKING:
    from tidemill.pipelines.lake.audit import LakeAudit
    from tidemill.pipelines.lake.replay import Replay
    from tidemill.pipelines.run.core.pipeline_facts import PipelineFacts
    from tidemill.pipelines.run.pipeline_reporter import PipelineReporter
    from tidemill.pipelines.run.runner import Reports
    from tidemill.pipelines.spec.core.broker import KafkaBroker

Folder = Annotated[
    Path, typer.Argument(metavar="LAKE", parser=local_folder, help="Folder of the lake, such as lake/orders.")
]
AUDIT_COLUMNS = ("partition", "rows", "first", "last", "missing", "doubled", "verdict")
MIB = 1024 * 1024
DAY_MS = 86_400_000
RETENTION, KEPT = "retention.ms", "-1"


def archive(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Topic to archive.")],
    to: Annotated[
        Path,
        typer.Option(metavar="FOLDER", parser=local_folder, help="Folder of the lakes. The topic gets a subfolder."),
    ],
    format_: LakeFormat = "parquet",
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
    """Copy every record of a topic once into a lake, in folders by day. The next run continues.

    Example: tidemill pipeline archive orders --to lake/
    """
    where = chosen_spark(master, remote, conf)
    from tidemill.client.kafka import KafkaClient
    from tidemill.pipelines.lake.audit import left_to_archive
    from tidemill.pipelines.run.core.pipeline_facts import copy_facts
    from tidemill.pipelines.run.runner import orderly, tend
    from tidemill.pipelines.spark.archive import Archive, archive_group, start_archive

    broker = pipeline_broker(bootstrap, client)
    existing_topics(broker, [topic])
    lake = lake_for(to / topic, format_)
    before = sum(file.rows for file in lake.files())
    with KafkaClient(broker.options) as raw:
        left = left_to_archive(raw, lake, topic)
    with (
        orderly() as heed,
        lake_session(where, lake, f"archive {topic}", verbose=verbose) as spark,
        progress("archiving", None if follow else left) as advance,
        broker_reporter(copy_facts("archive", topic, str(to / topic), archive_group(topic)), broker) as to_broker,
    ):
        stop, shown = heed(), batch_reporter(advance, follow=follow and not as_json)

        def report(reports: "Reports") -> None:
            shown(reports)
            to_broker.take(reports)

        tend(start_archive(spark, lake, Archive(broker, topic, follow, skip_lost)), stop, report)
    rows = sum(file.rows for file in lake.files())
    if as_json:
        show_json({"topic": topic, "lake": str(to / topic), "format": format_, "added": rows - before, "rows": rows})
    else:
        new = rows - before
        say(f"archived {new:,} record{'s' if new != 1 else ''} of {topic}; {to / topic} has {rows:,}")


def audit(
    lake: Folder,
    against: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Check on this broker whether gaps are lost records.")
    ] = None,
    client: Client = None,
    as_json: Json = False,
) -> None:
    """Check that a lake has every offset of its topic once. Exit code 1 if it does not.

    Example: tidemill pipeline audit lake/orders
    """
    check_libraries()
    from tidemill.client.kafka import KafkaClient
    from tidemill.pipelines.lake.audit import audit as look
    from tidemill.pipelines.lake.audit import lost, verdict_text
    from tidemill.pipelines.lake.opening import existing_lake

    found = look(existing_lake(lake))
    losses = None
    if against is not None:
        broker = pipeline_broker(against, client)
        reach(broker)
        with KafkaClient(broker.options) as raw:
            losses = lost(raw, lake.absolute().name, found.verdicts)
    rows: list[dict[str, Any]] = [
        {name: getattr(verdict, name) for name in AUDIT_COLUMNS[:-1]} | {"verdict": verdict_text(verdict, losses)}
        for verdict in found.verdicts
    ]
    _print_audit(found, rows, lake, as_json=as_json)


def compact(
    lake: Folder,
    target_mib: Annotated[
        int, typer.Option("--target", metavar="MIB", help="Target size of files in MiB.", min=1)
    ] = 128,
    as_json: Json = False,
) -> None:
    """Merge the small files of a lake. A running archive does it regularly.

    Example: tidemill pipeline compact lake/orders
    """
    check_libraries()
    from tidemill.pipelines.lake.compaction import compact as put_together
    from tidemill.pipelines.lake.compaction import waiting
    from tidemill.pipelines.lake.opening import existing_lake
    from tidemill.pipelines.run.lock import hold

    found = existing_lake(lake)
    with hold(found.root / LOCK, str(lake)):
        before = len(found.files())
        with progress("compacting", waiting(found, target_mib * MIB)) as advance:
            put_together(found, target_mib * MIB, advance)
        after = len(found.files())
    if as_json:
        show_json({"lake": str(lake), "before": before, "after": after})
    else:
        say(f"{lake} has {after:,} files; it had {before:,}")


def replay(
    lake: Folder,
    to: Annotated[str, typer.Option(metavar="TOPIC", help="Topic to write to. Created without retention if missing.")],
    rate: Annotated[int | None, typer.Option(help="Records per second. Default: no limit.", min=1)] = None,
    since: Annotated[
        str | None,
        typer.Option("--from", metavar="TIME", help="Only records from this time on: 2026-11-01, or 2h ago."),
    ] = None,
    again: Annotated[
        bool, typer.Option("--again", help="Start from the beginning, even after an earlier replay.")
    ] = False,
    bootstrap: Bootstrap = None,
    client: Client = None,
    as_json: Json = False,
) -> None:
    """Write the records of a lake to a topic, with keys, headers and timestamps. The next run continues.

    Example: tidemill pipeline replay lake/orders --to orders-again --rate 10000
    """
    check_libraries()
    from tidemill.client.kafka import KafkaClient
    from tidemill.pipelines.lake.opening import existing_lake
    from tidemill.pipelines.lake.replay import Replay, ReplayRequest
    from tidemill.pipelines.run.runner import orderly

    wanted = ReplayRequest(to, None if since is None else moment_ms(since), rate, again)
    found = existing_lake(lake)
    broker = pipeline_broker(bootstrap, client)
    with KafkaClient(broker.options) as raw, orderly() as heed:
        run = Replay(raw, found, wanted)
        _make_topic(broker, to, run)
        stop = heed()
        with progress("replaying", run.rows) as advance:
            rows = run.run(advance, stop.is_set)
    if as_json:
        finished = not stop.is_set()
        show_json({"lake": str(lake), "topic": to, "rows": rows, "older": run.older, "finished": finished})
    elif stop.is_set():
        say(f"stopped after {rows:,} records of {lake}; run it again to continue")
    else:
        say(f"replayed {rows:,} records of {lake} to {to}")
        if run.older:
            remark(f"left out, being older than --from: {run.older:,}; a later replay to {to} leaves them out, too")
        elif run.rows and not rows:
            remark("no records are left to replay; --again starts from the beginning")


def broker_reporter(facts: "PipelineFacts", broker: "KafkaBroker") -> "PipelineReporter":
    """Shows a built-in pipeline in the console of its broker."""
    from tidemill.pipelines.run.pipeline_reporter import PipelineReporter
    from tidemill.pipelines.run.status import wall_ms

    return PipelineReporter(facts, broker.options, remark, wall_ms)


def batch_reporter(advance: Advance, *, follow: bool) -> "Callable[[Reports], None]":
    """The callback of the runner: advances a bar, or prints a line for each micro-batch."""

    def show_batch(reports: "Reports") -> None:
        for name, batches in reports.items():
            for batch in batches:
                rows = int(batch.get("numInputRows") or 0)  # Spark Connect does not report it
                advance(rows)
                if follow and rows:
                    remark(f"{batch['timestamp'][11:19]}  {name}  {rows:,} records")

    return show_batch


def _print_audit(found: "LakeAudit", rows: list[dict[str, Any]], lake: Path, *, as_json: bool) -> None:
    wrong = [row for row in rows if row["verdict"] not in {"contiguous", "complete"}]
    if as_json:
        show_json({"lake": str(lake), "ok": not wrong and not found.strays, "partitions": rows, "strays": found.strays})
    else:
        show(rows, AUDIT_COLUMNS, as_json=False, empty=f"{lake} has no rows yet")
    if found.strays:
        raise CommandFailed(f"{found.strays[0]} in {lake} belongs to no commit; {len(found.strays)} such files")
    if wrong:
        worst = wrong[0]
        advice = "; transaction markers and aborted records also leave gaps; check with --against HOST:PORT"
        raise CommandFailed(
            f"partition {worst['partition']} of {lake}: {worst['missing']} offsets missing, {worst['doubled']} doubled"
            + (advice if worst["verdict"] == "holes" else "")
        )


def _make_topic(broker: "KafkaBroker", topic: str, run: "Replay") -> None:
    """Create the topic, or warn if the existing one deletes old records: replayed records keep their timestamps."""
    client = admin(broker)
    if topic not in known_topics(broker):
        from confluent_kafka.admin import NewTopic

        made = NewTopic(topic, run.partitions, config={RETENTION: KEPT})
        answer(client.create_topics([made])[topic], f"create {topic}")
        return
    from confluent_kafka.admin import ConfigResource, ResourceType

    resource = ConfigResource(ResourceType.TOPIC, topic)
    kept_ms = int(answer(client.describe_configs([resource])[resource], f"describe {topic}")[RETENTION].value)
    if run.oldest_ms is not None and 0 <= kept_ms < time.time_ns() // 1_000_000 - run.oldest_ms - DAY_MS:
        remark(
            f"{topic} deletes records older than {RETENTION}={kept_ms}, including replayed ones; "
            f"keep them with: tidemill topic alter {topic} --config {RETENTION}={KEPT}"
        )
