"""A data directory that lost files or parts of them: nothing that is intact is deleted, and errors are reported."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.support.command_line import CommandLine

from tidemill.cluster.journal import COPY, JOURNAL
from tidemill.testing import Broker

RECORDS = 600
WAIT_S = 60
QUIET = {"grpc": "none", "http": "none"}


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    return CommandLine("127.0.0.1:1", capsys, monkeypatch)


def _fill(broker: Broker, topics: int) -> None:
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    names = [f"topic-{number}" for number in range(topics)]
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    for created in admin.create_topics([NewTopic(name, 1) for name in names]).values():
        created.result(WAIT_S)
    for number in range(RECORDS):
        producer.produce("topic-0", b"%d" % number)
    assert producer.flush(WAIT_S) == 0


def _end_offset(broker: Broker, topic: str) -> int:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "g"})
    try:
        return int(consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=WAIT_S)[1])
    finally:
        consumer.close()


@pytest.mark.parametrize("damage", ["cut in the middle", "a byte changed", "removed"])
def test_a_damaged_journal_is_repaired_without_losing_a_topic(tmp_path: Path, cli: CommandLine, damage: str) -> None:
    data = tmp_path / "data"
    with Broker(data_dir=data, flags=QUIET) as broker:
        _fill(broker, 4)
    whole = (data / JOURNAL).read_bytes()
    if damage == "removed":
        (data / JOURNAL).unlink()
    else:
        middle = len(whole) // 2
        changed = whole[:middle] + (b"~" + whole[middle + 1 :] if damage == "a byte changed" else b"")
        (data / JOURNAL).write_bytes(changed)
    with pytest.raises(Exception, match=f"tidemill repair --data-dir {data}"):
        Broker(data_dir=data, flags=QUIET).start()
    shown = cli.fine("repair", "--data-dir", str(data))
    assert JOURNAL in shown.out
    assert "--yes" in shown.err
    assert (data / COPY).read_bytes() == whole, "it was only to be shown"
    cli.fine("repair", "--data-dir", str(data), "--yes")
    assert (data / JOURNAL).read_bytes() == whole
    with Broker(data_dir=data, flags=QUIET) as broker:
        assert _end_offset(broker, "topic-0") == RECORDS
        assert "is in use" in cli.refused(1, "repair", "--data-dir", str(data))
    assert "is in order" in cli.fine("repair", "--data-dir", str(data)).err


def test_topics_come_back_from_their_folders(tmp_path: Path, cli: CommandLine) -> None:
    """Both files of coordination are empty: only the folders still know the topics."""
    data = tmp_path / "data"
    with Broker(data_dir=data, flags=QUIET) as broker:
        _fill(broker, 2)
    lines = (data / JOURNAL).read_bytes().splitlines(keepends=True)
    for name in (JOURNAL, COPY):
        (data / name).write_bytes(b"".join(line for line in lines if b"topic-" not in line))
    cli.fine("repair", "--data-dir", str(data), "--yes")
    with Broker(data_dir=data, flags=QUIET) as broker:
        assert _end_offset(broker, "topic-0") == RECORDS
    assert not (data / "orphans").exists()


@pytest.mark.parametrize("file", ["node.json", "timelines.db"])
def test_a_removed_file_stops_the_start_until_the_loss_is_accepted(tmp_path: Path, cli: CommandLine, file: str) -> None:
    data = tmp_path / "data"
    with Broker(data_dir=data, flags=QUIET) as broker:
        _fill(broker, 1)
    (data / file).unlink()
    with pytest.raises(Exception, match=f"{file} is missing.*tidemill repair --data-dir {data}"):
        Broker(data_dir=data, flags=QUIET).start()
    assert not (data / file).exists()
    assert file in cli.fine("repair", "--data-dir", str(data)).out
    assert not (data / file).exists()
    cli.fine("repair", "--data-dir", str(data), "--yes")
    with Broker(data_dir=data, flags=QUIET) as broker:
        assert _end_offset(broker, "topic-0") == RECORDS
    assert "is in order" in cli.fine("repair", "--data-dir", str(data)).err


def test_doctor_shows_what_is_missing(tmp_path: Path, cli: CommandLine) -> None:
    data = tmp_path / "data"
    with Broker(data_dir=data, flags=QUIET) as broker:
        _fill(broker, 2)
    before = sorted(data.rglob("*"))
    free = ("doctor", "--data-dir", str(data), "--json")
    found = [each for each in json.loads(cli(*free).out) if each["check"] == "data directory"]
    assert [each["state"] for each in found] == ["fine"]
    (segment,) = (data / "streams" / "topic-0" / "0").glob("*.log")
    segment.unlink()
    shutil.rmtree(data / "streams" / "topic-1" / "0")
    answer = cli(*free)
    assert answer.code == 1
    found = [each for each in json.loads(answer.out) if each["check"] == "data directory"]
    assert {each["state"] for each in found} == {"wrong"}
    shown = " | ".join(each["found"] for each in found)
    assert "topic-0-0: segment 0 (offsets up to 599) is missing" in shown
    assert "topic-1-0: its folder is missing" in shown
    (data / "manifest.json").unlink()
    assert "manifest.json is missing" in cli(*free).out
    assert set(data.rglob("*")) < set(before), "looking changed something"


def _read(consumer: Any, count: int) -> list[int]:
    """The offsets of the next `count` records; every error on the way fails."""
    found: list[int] = []
    while len(found) < count:
        (message,) = consumer.consume(1, WAIT_S) or [None]
        assert message is not None, f"nothing after {found[-1:]}"
        assert message.error() is None, message.error()
        found.append(message.offset())
    return found


def test_consumers_read_past_a_hole_at_the_end_of_a_log(tmp_path: Path) -> None:
    """Killed, and its last segments removed: what is intact is read, then what comes behind the hole."""
    from confluent_kafka import Consumer, Producer, TopicPartition
    from confluent_kafka.admin import AdminClient, NewTopic

    broker = Broker(process=True, data_dir=tmp_path / "data", flags=QUIET).start()
    try:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
        topic = NewTopic("orders", 1, config={"segment.bytes": "16384"})
        admin.create_topics([topic])["orders"].result(WAIT_S)
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "batch.num.messages": 10, "log_level": 0})
        for number in range(RECORDS):
            producer.produce("orders", b"%0100d" % number)
        assert producer.flush(WAIT_S) == 0
        broker.kill()
        segments = sorted((tmp_path / "data" / "streams" / "orders" / "0").glob("*.log"))
        assert len(segments) > 3
        intact = int(segments[-2].stem)
        for path in segments[-2:]:
            path.unlink()
        broker.stop()
        broker = Broker(process=True, data_dir=tmp_path / "data", flags=QUIET).start()
        where = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "enable.auto.commit": False}
        reader = Consumer({**where, "auto.offset.reset": "error", "log_level": 0})
        reader.assign([TopicPartition("orders", 0, 0)])
        assert _read(reader, intact) == list(range(intact))
        end = _end_offset(broker, "orders")
        assert end >= RECORDS, "an acknowledged offset would be given out again"
        inside = Consumer({**where, "auto.offset.reset": "error", "log_level": 0})
        inside.assign([TopicPartition("orders", 0, intact + 1)])
        assert [message for each in (reader, inside) for message in each.consume(1, 1)] == []
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
        for number in range(3):
            producer.produce("orders", b"%d" % number)
        assert producer.flush(WAIT_S) == 0
        for each in (reader, inside):
            assert _read(each, 3) == [end, end + 1, end + 2]
            each.close()
    finally:
        broker.stop()
