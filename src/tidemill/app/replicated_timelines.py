"""Opens replicated timelines: the journal in an internal topic, an SQLite index of each partition, and gRPC calls.

The index files are in `timelines/` of the data directory, named after the topic's id, so that an index never meets the
journal of another topic. They need no backup: a missing one is built again from the journal.
"""

import asyncio
import sqlite3
from importlib import import_module
from pathlib import Path

from tidemill.app.data_directory import TIMELINES
from tidemill.broker.broker import BrokerNode
from tidemill.broker.timeline_journal_metrics import journal_readings
from tidemill.coordinator.timeline_journal import TimelineJournal
from tidemill.model.errors import InvalidConfig
from tidemill.model.topics import WAITING
from tidemill.records.header import iter_headers
from tidemill.records.read import read_records
from tidemill.settings import Settings, reached_by_brokers
from tidemill.streams.partition import Partition
from tidemill.timelines.core.timeline import WAITING_PREFIX
from tidemill.timelines.replicated.core.placement import first_seq
from tidemill.timelines.replicated.interface import AppendEntries, TimelineIndex, TimelinePeers
from tidemill.timelines.replicated.store import ReplicatedTimelineStore
from tidemill.timelines.sqlite.index import open_index, remove_index

INDEXES = "timelines"
READ_BYTES = 1024 * 1024
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
    check_local_file(settings.data_dir / TIMELINES)
    await check_waiting_records(broker)
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
    return store


def check_local_file(path: Path) -> None:
    """Reject a start that would leave messages of an earlier start in a local file, where nothing delivers them."""
    if not path.exists():
        return
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        names = [name for (name,) in connection.execute("SELECT name FROM timelines ORDER BY name")]
    except sqlite3.Error as error:
        raise InvalidConfig(
            f"{path} has timelines of an earlier start and cannot be read ({error}); move it away, or start with "
            "--timelines sqlite:"
        ) from error
    finally:
        connection.close()
    kept = [name for name in names if not name.startswith(WAITING_PREFIX)]
    if kept:
        raise InvalidConfig(
            f"{path} has {len(kept)} timelines, such as {kept[0]!r}, that --timelines replicated: (the default in a "
            "cluster) would not deliver; start with --timelines sqlite: until they are empty, delete them there, or "
            "move the file away"
        )


async def check_waiting_records(broker: BrokerNode) -> None:
    """Reject a start that would leave records for later in the journal of brokers with timelines of their own."""
    waiting: set[bytes] = set()
    for partition in broker.partitions:
        if partition.topic == WAITING:
            waiting |= await _alive(partition)
    if waiting:
        topic = min(waiting).partition(b"\0")[0].decode(errors="replace")
        raise InvalidConfig(
            f"{len(waiting)} records for later, such as one of topic {topic!r}, wait where --timelines replicated: "
            "would not deliver them; start all brokers with --timelines sqlite: until they are delivered or cancelled"
        )


async def _alive(partition: Partition) -> set[bytes]:
    """The keys of a compacted partition that have a value."""
    alive: set[bytes] = set()
    offset = partition.log_start_offset
    while pieces := await partition.reader.read_copied(offset, READ_BYTES):
        for piece in pieces:
            view = memoryview(piece)
            for position, header in iter_headers(view):
                offset = header.next_offset
                for record in read_records(view[position : position + header.size]):
                    (alive.discard if record.value is None else alive.add)(bytes(record.key or b""))
    return alive


def _file(folder: Path, log_id: str, number: int) -> Path:
    return folder / f"{log_id}-{number}.db"
