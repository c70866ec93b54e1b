"""Options and checks that the commands of `tidemill pipeline` share, run before Spark starts."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidemill.cli.connection import broker_at, no_topic, reach
from tidemill.cli.errors import CommandFailed, WrongUse
from tidemill.cli.output import hint, remark
from tidemill.cli.timeline_options import opened_timeline
from tidemill.model.topics import check_topic_name

if TYPE_CHECKING:
    from tidemill.pipelines.lake.interface import Lake
    from tidemill.pipelines.spark.remote import Where
    from tidemill.pipelines.spec.core.broker import KafkaBroker

Master = Annotated[
    str | None, typer.Option(metavar="URL", help="Spark's master: local[4], spark://host:7077, yarn, k8s://...")
]
Remote = Annotated[
    str | None,
    typer.Option(metavar="URL", help="Spark Connect server to use instead of a local Spark: sc://host:15002."),
]
Conf = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="NAME=VALUE", help="A Spark setting, such as spark.executor.memory=2g. Repeatable."),
]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Show the output of Spark.")]
LakeFormat = Annotated[str, typer.Option("--format", "-f", help="parquet, delta or iceberg.")]
Follow = Annotated[bool, typer.Option("--follow", help="Continue as the topic grows, until Ctrl-C.")]
SkipLost = Annotated[
    bool,
    typer.Option(
        "--skip-lost", help="Continue with the existing records when others were deleted before they were read."
    ),
]
LOCK = "_lock"
SPARK_FOLDER = "_spark"
STARTING = "starting Spark, which takes some seconds"


def pipeline_broker(bootstrap: str | None, client: list[str] | None) -> "KafkaBroker":
    """The broker of --bootstrap and --client. Pipelines also accept client settings for reads, writes and timeouts."""
    from tidemill.pipelines.spec.core.broker import PIPELINE_NAMES

    return broker_at(bootstrap, client, understood=PIPELINE_NAMES)


def chosen_spark(
    master: str | None,
    remote: str | None,
    conf: list[str] | None,
    *,
    connect: bool = False,
    settings: Mapping[str, str] | None = None,
) -> "Where":
    """The Spark to use, or an error for missing parts. `settings` come from a file, and --conf overrides them."""
    check_libraries()
    from tidemill.pipelines.spark.remote import Where, check_where
    from tidemill.pipelines.spec.core.spark_settings import parse_settings

    kept = settings if settings and remote is None else {}
    with options_checked():
        where = Where(master, remote, connect, {**kept, **parse_settings(conf or ())})
        check_where(where)
    return where


def lake_for(folder: Path, format_: str) -> "Lake":
    """The lake to write to."""
    from tidemill.pipelines.lake.opening import open_lake

    with options_checked():
        return open_lake(folder, format_)


@contextmanager
def options_checked() -> Iterator[None]:
    """Turn an invalid option into WrongUse."""
    from tidemill.pipelines.errors import WrongOption

    try:
        yield
    except WrongOption as error:
        raise WrongUse(str(error)) from None


def check_libraries() -> None:
    """Fail with the first library that pipelines lack."""
    from importlib.util import find_spec

    missing = [name for name in ("pyspark", "pyarrow", "yaml") if find_spec(name) is None]
    if missing:
        raise CommandFailed(f"pipelines need {missing[0]}: pip install 'tidemill[spark]'")


@contextmanager
def sole_writer(lakes: Iterable[Path]) -> Iterator[None]:
    """Lock the lakes for writing: a second writer would delete the staged files of the first."""
    from tidemill.pipelines.run.lock import hold

    with ExitStack() as held:
        for lake in lakes:
            held.enter_context(hold(lake / LOCK, str(lake)))
        yield


@contextmanager
def lake_session(where: "Where", lake: "Lake", name: str, *, verbose: bool) -> Iterator[Any]:
    """A Spark session with the write lock of a lake."""
    from tidemill.pipelines.spark.remote import session_for

    hint(STARTING)
    with (
        sole_writer([lake.root]),
        session_for(where, name, lake.root / SPARK_FOLDER, remark, verbose=verbose) as spark,
    ):
        yield spark


def known_topics(broker: "KafkaBroker") -> list[str]:
    """The topics of the broker. CommandFailed if it cannot be reached or rejects the login."""
    from tidemill.client.kafka import KafkaClient

    reach(broker)
    with KafkaClient(broker.options) as client:
        return sorted(client.topics())


def existing_topics(broker: "KafkaBroker", topics: list[str]) -> None:
    """Check that the topics exist, before Spark takes seconds to start."""
    for topic in topics:
        check_topic_name(topic)
    known = known_topics(broker)
    for topic in topics:
        if topic not in known:
            raise no_topic(topic)


def existing_timelines(address: str, names: list[str], client: Mapping[str, str]) -> None:
    """Check that the timelines exist. Their errors say what to do. `client` has the settings for TLS and login."""
    for name in names:
        with opened_timeline(address, client, name) as opened:
            opened.describe()
