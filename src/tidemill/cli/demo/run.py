"""`tidemill demo`: starts the parts, displays them, and stops them in order.

Orders and reminders stop first, then the pipeline processes the rest, and the broker stops last, because all others use
it. The first Ctrl-C (or SIGTERM, or the end of --duration) starts this. The second one does not wait for the pipeline.
"""

import contextlib
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType
from typing import Annotated, Self

import typer

from tidemill.app import logs
from tidemill.app.node import Node
from tidemill.app.process import SWITCH_S
from tidemill.app.thread import NodeThread
from tidemill.cli.demo import orders, pipeline
from tidemill.cli.demo.orders import Orders
from tidemill.cli.demo.pace import Pace
from tidemill.cli.demo.reminders import Reminders
from tidemill.cli.demo.revenue import FINISHED, Pipeline, Totals
from tidemill.cli.demo.screen import Screen, Snapshot, screen, summary
from tidemill.cli.errors import CommandFailed, WrongUse
from tidemill.cli.options import Json, local_folder
from tidemill.cli.output import say, show_json
from tidemill.model.addresses import Address, parse_address
from tidemill.model.errors import TopicAlreadyExists
from tidemill.settings import ROWS, load

SERVERS = ("kafka", "grpc", "http")
REFRESH_S = 0.25
RATE_MAX = 100_000.0
ASKED_PATIENCE_S = 8.0
"""How long a stop by Ctrl-C waits for the last micro-batch."""
TIMED_PATIENCE_S = 100.0
"""How long a run with --duration waits, because it needs the whole result."""
DEFAULTS = {row.name: parse_address(row.default) for row in ROWS if row.name in SERVERS}


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """The options of the command."""

    folder: Path
    rate: float
    seed: int
    with_spark: bool
    addresses: dict[str, str]


@dataclass(frozen=True, slots=True)
class StopRequest:
    """Whether a signal asked the demo to stop, and to stop at once."""

    asked: threading.Event = field(default_factory=threading.Event)
    hurry: threading.Event = field(default_factory=threading.Event)

    def on_signal(self, _: int, __: FrameType | None) -> None:
        """Stop at the first signal, and at once at the second one."""
        (self.hurry if self.asked.is_set() else self.asked).set()


def demo(
    duration: Annotated[float, typer.Option("--duration", min=0, help="Stop after this many seconds. 0: never.")] = 0,
    rate: Annotated[float, typer.Option("--rate", min=0, max=RATE_MAX, help="Orders per second.")] = 200,
    seed: Annotated[int, typer.Option("--seed", help="The same seed gives the same orders.")] = 1,
    no_spark: Annotated[bool, typer.Option("--no-spark", help="Run without the Spark pipeline.")] = False,
    data_dir: Annotated[
        Path | None,
        typer.Option(
            "--data-dir",
            metavar="PATH",
            parser=local_folder,
            help="Data directory. Default: a temporary one.",
        ),
    ] = None,
    kafka: Annotated[
        str | None, typer.Option("--kafka", help="Kafka address. Default: 127.0.0.1:9092, or a free port.")
    ] = None,
    grpc: Annotated[
        str | None, typer.Option("--grpc", help="gRPC address. Default: 127.0.0.1:6174, or a free port.")
    ] = None,
    http: Annotated[
        str | None, typer.Option("--http", help="HTTP address. Default: 127.0.0.1:8080, or a free port.")
    ] = None,
    patience: Annotated[
        float | None,
        typer.Option("--patience", min=0, help="Seconds to wait at the end for Spark to process the rest."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Run a broker, a stream of orders, reminders on a timeline and a Spark pipeline. Ctrl-C stops everything.

    Example: tidemill demo --duration 60
    """
    addresses = {name: given or free_address(name) for name, given in zip(SERVERS, (kafka, grpc, http), strict=True)}
    if "none" in addresses.values():
        raise WrongUse("the demo needs its Kafka, gRPC and HTTP servers; give host:port instead of none")
    with _signals() as request, _folder(data_dir) as folder:
        options = DemoOptions(folder, rate, seed, not no_spark, addresses)
        shown = screen(as_json=as_json)
        try:
            last, drained = _run(options, shown, request, duration, patience)
        finally:
            shown.close()
    if as_json:
        show_json({**last.to_json(), "drained": drained, "seed": seed})
    else:
        say(summary(last, drained=drained))
    _judge(last, drained=drained)


def free_address(name: str) -> str:
    """The default address of a server, or any port if another process uses it."""
    usual = DEFAULTS[name]
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(usual)
        except OSError:
            return str(Address(usual.host, 0))
    return str(usual)


def _run(
    options: DemoOptions, shown: Screen, request: StopRequest, duration: float, patience: float | None
) -> tuple[Snapshot, bool]:
    with Demo(options) as running:
        shown.note(running.welcome())
        deadline = time.monotonic() + (duration or float("inf"))
        while not request.asked.wait(REFRESH_S) and time.monotonic() < deadline:
            shown.show(running.snapshot())
            if (news := running.news()) is not None:
                shown.note(news)
        timed = not request.asked.is_set()
        if patience is None:
            patience = TIMED_PATIENCE_S if timed else ASKED_PATIENCE_S
        request.asked.set()
        shown.note("stopping")
        return running.finish(patience, request.hurry, whole=timed)


def _judge(last: Snapshot, *, drained: bool) -> None:
    """Fail the demo if a guarantee was broken."""
    if last.reminders_early:
        raise CommandFailed(f"{last.reminders_early} reminders were delivered before they were due")
    if drained and last.orders_aggregated != last.orders_in_topic:
        raise CommandFailed(f"{last.orders_in_topic} orders were written, but {last.orders_aggregated} aggregated")


class Demo:
    """All parts, running between `__enter__` and `__exit__`."""

    def __init__(self, options: DemoOptions) -> None:
        self._options = options
        self._began = time.monotonic()
        self._pace = Pace(self._began)
        self._ended: float | None = None
        self._reported: set[bool] = set()
        self._open = contextlib.ExitStack()
        self.pipeline: Pipeline | None = None
        self._totals: Totals | None = None

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as opened:
            self._start(opened)
            self._open = opened.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def _start(self, opened: contextlib.ExitStack) -> None:
        options = self._options
        logs.quiet_unless_configured()
        sys.setswitchinterval(SWITCH_S)
        flags = {**options.addresses, "data-dir": str(options.folder / "broker")}
        self._thread = NodeThread(load(flags))
        self._thread.start()
        opened.callback(self._thread.stop)
        self._thread.call(_create_topics)
        servers = str(self.node.kafka)
        if options.with_spark:
            self.pipeline = Pipeline(servers, options.folder)
            opened.callback(self._stop_pipeline, 0.0, threading.Event())
            self._totals = Totals(servers)
            opened.callback(self._totals.close)
        self._reminders = Reminders(self._thread, options.seed)
        self._reminders.start()
        opened.callback(self._reminders.stop)
        self._orders = Orders(servers, options.rate, options.seed)
        self._orders.start()
        opened.callback(self._orders.stop)

    @property
    def node(self) -> Node:
        """The broker's node."""
        return self._thread.node

    def welcome(self) -> str:
        """The addresses and folders of the demo."""
        node, spark = self.node, ""
        if self.pipeline is not None:
            spark = f"\nparquet    {self._options.folder / pipeline.LAKE} (when Spark is ready)"
        return f"kafka      {node.kafka}\ngrpc       {node.grpc}\nconsole    {node.http_url}/{spark}"

    def news(self) -> str | None:
        """News about Spark, each reported once."""
        running = self.pipeline
        if running is None:
            return None
        text = None
        if running.has_ended:
            text = f"without Spark: {running.reason}"
        elif running.batches:
            text = f"spark      joined, {running.rows:,} orders in its first micro-batch"
        if text is None or running.has_ended in self._reported:
            return None
        self._reported.add(running.has_ended)
        return text

    def snapshot(self) -> Snapshot:
        """The current state."""
        if self._reminders.error is not None:
            raise CommandFailed(f"the reminders stopped: {self._reminders.error}")
        in_topic, lag = self._thread.call(_progress)
        base = Snapshot(
            seconds=round((self._ended or time.monotonic()) - self._began, 1),
            orders_written=self._orders.written,
            orders_per_s=self._orders_per_s(),
            orders_in_topic=in_topic,
            lag=lag,
            reminders_scheduled=self._reminders.scheduled,
            reminders_delivered=self._reminders.delivered,
            reminders_early=self._reminders.early,
            reminders_lateness=self._reminders.lateness,
            spark="off",
        )
        return base if self.pipeline is None else self._with_spark(base, self.pipeline)

    def finish(self, patience_s: float, hurry: threading.Event, *, whole: bool) -> tuple[Snapshot, bool]:
        """Stop the writers and let the pipeline process the rest. Returns the last snapshot and whether it did."""
        self._orders.stop()
        self._reminders.stop()
        self._ended = time.monotonic()
        self._stop_pipeline(patience_s, hurry, whole=whole)
        drained = self.pipeline is not None and self.pipeline.state == FINISHED
        if self._totals is not None and self.pipeline is not None and self.pipeline.batches:
            drained = self._totals.recount() and drained
        return self.snapshot(), drained

    def _stop_pipeline(self, patience_s: float, hurry: threading.Event, *, whole: bool = False) -> None:
        if self.pipeline is not None:
            self.pipeline.stop(patience_s, hurry, whole=whole)

    def _with_spark(self, base: Snapshot, running: Pipeline) -> Snapshot:
        if self._totals is not None and running.batches:
            self._totals.take()
        return replace(
            base,
            spark=running.state,
            spark_reason=running.reason,
            batches=running.batches,
            rows=running.rows,
            batch_ms=running.took_ms,
            orders_aggregated=self._totals.orders if self._totals else 0,
            revenue_by_item=self._totals.by_item if self._totals else {},
        )

    def _orders_per_s(self) -> float:
        """The current rate. After the end, the rate of the whole run, because the writers stop before the pipeline."""
        if self._ended is not None:
            return self._pace.overall(self._ended, self._orders.written)
        return self._pace.lately(time.monotonic(), self._orders.written)


async def _create_topics(node: Node) -> None:
    with contextlib.suppress(TopicAlreadyExists):
        await node.broker.topics.create(orders.TOPIC, partitions=orders.PARTITIONS)
    with contextlib.suppress(TopicAlreadyExists):
        await node.broker.topics.create(pipeline.REVENUE, partitions=1, overrides={"cleanup.policy": "compact"})


async def _progress(node: Node) -> tuple[int, int | None]:
    """The number of orders in the topic, and how many the pipeline has not processed. None before its first one."""
    fetched = node.broker.groups.fetch(pipeline.GROUP, None)
    taken = {each.partition: each.offset for each in fetched if each.topic == orders.TOPIC}
    ends = {index: node.broker.view.partition(orders.TOPIC, index).high_watermark for index in range(orders.PARTITIONS)}
    lag = sum(end - max(taken.get(index, 0), 0) for index, end in ends.items())
    return sum(ends.values()), lag if taken else None


@contextlib.contextmanager
def _signals() -> Iterator[StopRequest]:
    request = StopRequest()
    before = {number: signal.signal(number, request.on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _folder(given: Path | None) -> Iterator[Path]:
    if given is not None:
        given.mkdir(parents=True, exist_ok=True)
        yield given.resolve()
        return
    with tempfile.TemporaryDirectory(prefix="tidemill-demo-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)
