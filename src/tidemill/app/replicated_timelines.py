"""Opens replicated timelines: the journal in an internal topic, an SQLite index of each partition, and gRPC calls.

Messages that an earlier start with other timelines has left are moved in the background: those of a file of this
broker, and records for later in the journal of waiting records.

The index files are in `timelines/` of the data directory, named after the topic's id, so that an index never meets the
journal of another topic. They need no backup: a missing one is built again from the journal.
"""

import asyncio
import sqlite3
from datetime import UTC, datetime
from functools import partial
from importlib import import_module
from pathlib import Path

from tidemill.app.data_directory import TIMELINES
from tidemill.broker.broker import BrokerNode
from tidemill.broker.timeline_journal_metrics import journal_readings, move_readings
from tidemill.coordinator.timeline_journal import TimelineJournal
from tidemill.model.errors import InvalidConfig
from tidemill.model.topics import WAITING
from tidemill.scheduling.waiting_move import WaitingMove, keep_mark
from tidemill.settings import Settings, reached_by_brokers
from tidemill.timelines.core.timeline import SCHEDULE
from tidemill.timelines.replicated.core.placement import first_seq
from tidemill.timelines.replicated.interface import AppendEntries, TimelineIndex, TimelinePeers
from tidemill.timelines.replicated.moving import TimelineMover, TimelineMoveRules
from tidemill.timelines.replicated.store import ReplicatedTimelineStore
from tidemill.timelines.sqlite.index import open_index, remove_index
from tidemill.timelines.sqlite.leaving import LeavingFile

INDEXES = "timelines"
MOVE = "timeline move"
PEERS_MODULE = "tidemill.servers.grpc.timeline_peers"


async def open_replicated(settings: Settings, broker: BrokerNode) -> ReplicatedTimelineStore:
    """Open the timelines of this broker, and answer the calls of the others."""
    if settings.coordination.startswith("local:") or not reached_by_brokers(
        settings.advertise_grpc or settings.grpc, settings.listeners
    ):
        raise InvalidConfig(
            "--timelines replicated: needs several brokers that call each other over gRPC: set --coordination "
            "etcd://... and --grpc with an address that they reach, such as 0.0.0.0:6174, or use --timelines sqlite:"
        )
    has_file = check_local_file(settings.data_dir / TIMELINES)
    folder = settings.data_dir / INDEXES

    async def open_one(log_id: str, number: int, append: AppendEntries) -> TimelineIndex:
        return await open_index(_file(folder, log_id, number), first_seq(number), append)

    async def remove_one(log_id: str, number: int) -> None:
        await asyncio.to_thread(remove_index, _file(folder, log_id, number))

    peers: TimelinePeers = (await asyncio.to_thread(import_module, PEERS_MODULE)).GrpcTimelinePeers(broker)
    journal = TimelineJournal(
        broker.internal, broker.partitions, is_committed_by_all=settings.broker.tidemill_timelines_committed
    )
    store = ReplicatedTimelineStore(
        broker.node_id,
        journal,
        peers,
        open_index=open_one,
        remove_index=remove_one,
        clock_ms=broker.clock_ms,
        journal_bytes=settings.broker.tidemill_timelines_journal_bytes,
        supervisor=broker.supervisor,
    )
    broker.answer_timeline_calls = store.answers.answer
    await store.start()
    broker.metrics.sources.append(journal_readings(lambda: store.partitions))
    waiting = WaitingMove(
        broker.internal.journal(WAITING),
        store,
        led=lambda: broker.internal.led(WAITING),
        journal_id=lambda: broker.internal.topic_id(WAITING),
        topic=broker.view.topic,
    )
    store.attach(broker.supervisor.keep("waiting records", waiting.run))
    if has_file:
        mover = _make_mover(settings.data_dir / TIMELINES, store, broker)
        broker.move_notes = lambda: mover.notes
        broker.metrics.sources.append(move_readings(lambda: mover.left))
        store.attach(broker.supervisor.keep(MOVE, mover.run))
    return store


def check_local_file(path: Path) -> bool:
    """Whether an earlier start has left a file of timelines here, which can be read."""
    if not path.exists():
        return False
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        connection.execute("SELECT name FROM timelines LIMIT 1").fetchall()
    except sqlite3.Error as error:
        raise InvalidConfig(
            f"{path} has timelines of an earlier start and cannot be read ({error}); restore it from a backup, or move "
            "it away to give them up"
        ) from error
    finally:
        connection.close()
    return True


def _make_mover(path: Path, store: ReplicatedTimelineStore, broker: BrokerNode) -> TimelineMover:
    """What moves the timelines of this broker's file to the cluster."""

    def refuse(name: str) -> str:
        topic = name.removeprefix(SCHEDULE)
        if topic == name or broker.view.topic(topic) is not None:
            return ""
        return (
            f"scheduled records of topic {topic!r} cannot move, because the cluster has no such topic; create it with: "
            f"tidemill topic create {topic}"
        )

    def retired_name() -> str:
        now = datetime.fromtimestamp(broker.clock_ms() / 1000, UTC)
        return f"{path.name}.moved-{now:%Y%m%dT%H%M%SZ}"

    return TimelineMover(
        lambda: LeavingFile(path),
        store,
        TimelineMoveRules(refuse, keep_mark),
        drawn=broker.environment.new_id().hex,
        retired_name=retired_name,
        report=partial(broker.supervisor.set_condition, MOVE),
    )


def _file(folder: Path, log_id: str, number: int) -> Path:
    return folder / f"{log_id}-{number}.db"
