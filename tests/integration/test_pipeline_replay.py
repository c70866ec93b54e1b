"""Replays that are stopped, killed and started again: readers of committed records find each record once."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.command_line import CommandLine

from tidemill.client.kafka import EARLIEST, LATEST, GroupOffset, KafkaClient
from tidemill.client.kafka.kernels import chosen_kernels
from tidemill.model.topics import TopicPartition
from tidemill.pipelines.errors import PipelineError
from tidemill.pipelines.lake import replay as replaying
from tidemill.pipelines.lake.compaction import compact
from tidemill.pipelines.lake.core.contents import LakeFile
from tidemill.pipelines.lake.interface import CommitStep, Lake
from tidemill.pipelines.lake.opening import open_lake
from tidemill.pipelines.lake.replay import Replay, ReplayRequest
from tidemill.pipelines.lake.rows import StagedRows, stage_rows
from tidemill.pipelines.run.lag import lags_of
from tidemill.pipelines.topic.core.ledger import LedgerEntry, write_entry
from tidemill.records.arrow import Decoder, Encoder
from tidemill.records.compression import Codec
from tidemill.testing import Broker

PARTITIONS = 3
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


class Died(BaseException):
    """As if by kill -9."""


class DyingClient(KafkaClient):
    """A client of a process that is killed: nothing goes out after so many calls."""

    def __init__(self, servers: str, calls: int) -> None:
        super().__init__({"bootstrap.servers": servers})
        self._calls = calls

    def __getattribute__(self, name: str) -> Any:
        if name in {"produce", "add_partitions", "commit_offsets_in", "end_transaction"}:
            if self._calls == 0:
                raise Died
            self._calls -= 1
        return super().__getattribute__(name)


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with Broker() as broker:
        yield broker.bootstrap_servers


def rows_of(partition: int, offsets: range) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {
            "key": [b"%d" % offset for offset in offsets],
            "value": [b"%d-%d" % (partition, offset) for offset in offsets],
            "headers": pa.array([None] * len(offsets), HEADERS),
            "timestamp": pa.array([offset * 1_000_000 for offset in offsets], pa.timestamp("us", "UTC")),
            "topic": ["orders"] * len(offsets),
            "partition": pa.array([partition] * len(offsets), pa.int32()),
            "offset": list(offsets),
        }
    )


def add(lake: Lake, batch: int, offsets: range) -> None:
    found = [rows_of(partition, offsets) for partition in range(PARTITIONS)]
    reported = stage_rows(StagedRows(str(lake.root), f"{batch:04}"), 0, found)
    lake.commit(
        CommitStep("q", batch), [LakeFile(**row) for each in reported for row in each.to_pylist()], found[0].schema
    )


def a_batch() -> bytearray | memoryview:
    encoder = Encoder(pa.record_batch({"value": ["x"]}), now_ms=0, kernels=chosen_kernels())
    [made] = encoder.batches(np.arange(1, dtype=np.int64), codec=Codec.NONE)
    return made.batch


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    made = open_lake(tmp_path / "orders")
    for batch in range(3):
        add(made, batch, range(batch * 10, batch * 10 + 10))
    return made


def everything(offsets: int = 30) -> list[bytes]:
    return [b"%d-%d" % (partition, offset) for partition in range(PARTITIONS) for offset in range(offsets)]


def committed(servers: str, topic: str) -> list[bytes]:
    """By partition, in order."""
    found: list[bytes] = []
    with KafkaClient({"bootstrap.servers": servers}) as client:
        for index in sorted(client.metadata([topic])[topic].leaders):
            part = TopicPartition(topic, index)
            begin, end = (client.list_offsets({part: at}, committed=True)[part].offset for at in (EARLIEST, LATEST))
            decoder, at = Decoder(topic, index, columns=("value",)), begin
            for piece in client.read_range(part, begin, end, committed=True) if begin < end else ():
                for rows in decoder.decode(piece.records, at, end, piece.aborted):
                    found.extend(rows.column("value").to_pylist())
                at = piece.next_offset
    return found


def make_topic(servers: str, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    kept = {"retention.ms": "-1"}  # the times of the records are long ago
    admin.create_topics([NewTopic(topic, partitions, config=kept)])[topic].result(60)


def test_a_killed_replay_continues_without_duplicates(
    servers: str, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_topic(servers, "killed", PARTITIONS)
    monkeypatch.setattr(replaying, "ROWS", 4)
    monkeypatch.setattr(replaying, "ROWS_PER_TRANSACTION", 9)
    deaths = 0
    for calls in (0, 1, 5, 9, 10, 11, 12, 14, 10_000):
        with DyingClient(servers, calls) as client:
            try:
                Replay(client, lake, ReplayRequest("killed")).run(lambda _: None)
            except Died:
                deaths += 1
    assert deaths > 4
    assert committed(servers, "killed") == everything()


def test_a_second_replay_writes_only_new_rows_unless_requested(servers: str, lake: Lake) -> None:
    make_topic(servers, "twice", PARTITIONS)
    with KafkaClient({"bootstrap.servers": servers}) as client:
        advanced: list[int] = []
        assert Replay(client, lake, ReplayRequest("twice")).run(advanced.append) == 90
        assert sum(advanced) == 90
        compact(lake)
        advanced.clear()
        assert Replay(client, lake, ReplayRequest("twice")).run(advanced.append) == 0
        assert sum(advanced) == 90
        add(lake, 3, range(30, 35))
        assert Replay(client, lake, ReplayRequest("twice")).run(lambda _: None) == 15
        assert committed(servers, "twice") == everything(35)
        assert Replay(client, lake, ReplayRequest("twice", again=True)).run(lambda _: None) == 105
    assert sorted(committed(servers, "twice")) == sorted(everything(35) * 2)


def test_a_topic_that_has_its_records_is_not_filled_from_its_own_lake(servers: str, lake: Lake) -> None:
    topic = lake.root.name
    make_topic(servers, topic, PARTITIONS)
    with KafkaClient({"bootstrap.servers": servers}) as client:
        client.produce_all({TopicPartition(topic, 1): a_batch()})
        with pytest.raises(
            PipelineError, match=r"is an archive of orders, which still has records, so they would be duplicated"
        ):
            Replay(client, lake, ReplayRequest(topic)).run(lambda _: None)
        assert Replay(client, lake, ReplayRequest(topic, again=True)).run(lambda _: None) == 90


def test_a_topic_that_was_lost_is_filled_from_its_own_lake(servers: str, tmp_path: Path) -> None:
    lake = open_lake(tmp_path / "lost")
    add(lake, 0, range(30))
    make_topic(servers, "lost", PARTITIONS)
    with KafkaClient({"bootstrap.servers": servers}) as client:
        stops = iter([False, False, True])
        first = Replay(client, lake, ReplayRequest("lost", rate=50)).run(lambda _: None, lambda: next(stops))
        assert 0 < first < 90
        assert first + Replay(client, lake, ReplayRequest("lost")).run(lambda _: None) == 90
    assert committed(servers, "lost") == everything()


def test_a_topic_that_is_made_keeps_what_is_old_and_others_say_that_they_do_not(
    servers: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = CommandLine(servers, capsys, monkeypatch)
    lake = open_lake(tmp_path / "old")
    rows = rows_of(0, range(5)).append_column("date", pa.array(["1970-01-01"] * 5))
    reported = stage_rows(StagedRows(str(lake.root), "0000", ("date",)), 0, [rows])
    lake.commit(CommitStep("q", 0), [LakeFile(**row) for each in reported for row in each.to_pylist()], rows.schema)
    run.fine("topic", "create", "short", "--config", "retention.ms=1000")
    assert (
        "short deletes records older than retention.ms=1000"
        in run.fine("pipeline", "replay", str(lake.root), "--to", "short").err
    )
    assert run.fine("pipeline", "replay", str(lake.root), "--to", "made").err == ""
    assert "retention.ms=-1" in run.fine("topic", "describe", "made").out.replace(" ", "")
    assert run.fine("pipeline", "replay", str(lake.root), "--to", "made").err.startswith(
        "no records are left to replay"
    )
    assert (
        "older than --from: 5;"
        in run.fine("pipeline", "replay", str(lake.root), "--to", "made", "--again", "--from", "1h ago").err
    )


def test_offsets_of_a_replay_or_a_sink_are_not_lag(servers: str, lake: Lake) -> None:
    make_topic(servers, "noted", PARTITIONS)
    part = TopicPartition("noted", 0)
    with KafkaClient({"bootstrap.servers": servers}) as client:
        replay = Replay(client, lake, ReplayRequest("noted"))
        replay.run(lambda _: None)
        entry = LedgerEntry(7, "query", 3, 1, done=True)
        client.commit_offsets("sink", {part: GroupOffset(entry.number, metadata=write_entry(entry)[0])})
        client.commit_offsets("reader", {part: GroupOffset(20)})
        client.commit_offsets("talker", {part: GroupOffset(20, metadata="read by talker=1 at 12:30")})
        found = lags_of(client, [replay.name, "sink", "reader", "talker"], {"noted"}, now_ms=0)
    assert {lag.group for lag in found} == {"reader", "talker"}


def test_a_replay_can_be_stopped_can_begin_later_and_can_have_other_partitions(servers: str, lake: Lake) -> None:
    make_topic(servers, "narrow", 2)
    stops = iter([False] * 12 + [True])
    wanted = ReplayRequest("narrow", since_ms=10_000, rate=1_000_000)
    with KafkaClient({"bootstrap.servers": servers}) as client:
        first = Replay(client, lake, ReplayRequest("narrow", 10_000, 50)).run(lambda _: None, lambda: next(stops))
        assert 0 < first < 60
        assert first + Replay(client, lake, wanted).run(lambda _: None) == 60
    expected = [b"%d-%d" % (partition, offset) for partition in range(PARTITIONS) for offset in range(10, 30)]
    assert sorted(committed(servers, "narrow")) == sorted(expected)
    with KafkaClient({"bootstrap.servers": servers}) as client:
        again = Replay(client, lake, ReplayRequest("narrow", since_ms=10_000, again=True))
        assert (again.run(lambda _: None), again.older) == (60, 30)
