"""Requests that clients should not send, and some that they should. `comparison.py` sends them to Apache Kafka too."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from struct import pack_into
from typing import Any
from uuid import UUID

from crc32c import crc32c
from tests.compat.comparison import Fields, Question, State

from tidemill.records.build import NewRecord, build_batch

NOW_MS = 1_794_942_000_000
NO_BROKER = -1
UNKNOWN_ID = UUID(int=7)


def ms(value: int) -> timedelta:
    return timedelta(milliseconds=value)


# -- topics ------------------------------------------------------------------------------------------------------------


def topic(
    name: str,
    partitions: int = 1,
    copies: int = 1,
    places: Sequence[tuple[int, Sequence[int]]] = (),
    configs: Mapping[str, str | None] | None = None,
) -> Fields:
    return {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": copies,
        "assignments": [{"partition_index": at, "broker_ids": nodes} for at, nodes in places],
        "configs": [{"name": one, "value": value} for one, value in (configs or {}).items()],
    }


def created(*topics: Fields, validate: bool = False) -> Fields:
    return {"topics": topics, "timeout": ms(10_000), "validate_only": validate}


def deleted(*topics: tuple[str | None, UUID | None]) -> Fields:
    return {"topics": [{"name": name, "topic_id": id_} for name, id_ in topics], "timeout": ms(10_000)}


def grown(*topics: tuple[str, int, Any], validate: bool = False) -> Fields:
    asked = [{"name": name, "count": count, "assignments": places} for name, count, places in topics]
    return {"topics": asked, "timeout": ms(10_000), "validate_only": validate}


def metadata(*topics: tuple[str | None, UUID | None]) -> Fields:
    asked = [{"name": name, "topic_id": id_} for name, id_ in topics]
    return {"topics": asked, "allow_auto_topic_creation": False, "include_topic_authorized_operations": False}


def on_topics() -> Iterator[Question]:
    for name in ("", ".", "..", "x" * 249, "x" * 250, "a b", "é", "plain"):
        yield Question(f"create {name[:10]!r} of {len(name)}", 19, 7, created(topic(name)))
    wrong = {
        "again": topic("plain"),
        "0 partitions": topic("p0", 0),
        "-2 partitions": topic("p2", -2),
        "0 copies": topic("r0", 1, 0),
        "-2 copies": topic("r2", 1, -2),
        "more copies than brokers": topic("r9", 1, 9),
        "number and places": topic("n1", 1, 1, [(0, [1])]),
        "a partition left out": topic("n2", -1, -1, [(1, [1])]),
        "a partition twice": topic("n3", -1, -1, [(0, [1]), (0, [1])]),
        "an unknown broker": topic("n4", -1, -1, [(0, [77])]),
        "no broker": topic("n5", -1, -1, [(0, [])]),
        "a setting that is none": topic("s1", configs={"nope": "1"}),
        "a setting that is no number": topic("s2", configs={"retention.ms": "soon"}),
        "a setting without value": topic("s3", configs={"retention.ms": None}),
        "no such policy": topic("s4", configs={"cleanup.policy": "zap"}),
        "a negative size": topic("s5", configs={"segment.bytes": "-5"}),
        "a small segment": topic("s6", configs={"segment.bytes": "1"}),
        "no replica in sync": topic("s7", configs={"min.insync.replicas": "0"}),
        "no such codec": topic("s8", configs={"compression.type": "brotli"}),
        "yes is no truth": topic("s9", configs={"unclean.leader.election.enable": "yes"}),
        "a ratio above one": topic("s10", configs={"min.cleanable.dirty.ratio": "1.5"}),
        "lags that cross": topic("s11", configs={"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"}),
        "the broker's choice": topic("b1", -1, -1),
        "spaces around a number": topic("b2", configs={"retention.ms": " 5 "}),
        "two policies": topic("b3", configs={"cleanup.policy": "delete, compact"}),
        "the truth in capitals": topic("b4", configs={"unclean.leader.election.enable": "TRUE"}),
    }
    for name, asked in wrong.items():
        yield Question(f"create: {name}", 19, 7, created(asked))
    yield Question("create: only looked at", 19, 7, created(topic("v1"), validate=True))
    yield Question("create: only looked at, and there", 19, 7, created(topic("plain"), validate=True))
    yield Question("create: nothing", 19, 7, created())
    yield Question("grow: less", 37, 3, grown(("plain", 0, None)))
    yield Question("grow: the same", 37, 3, grown(("plain", 1, None)))
    yield Question("grow: unknown", 37, 3, grown(("nope", 3, None)))
    yield Question("grow: too few places", 37, 3, grown(("plain", 3, [{"broker_ids": [1]}])))
    yield Question("grow: an unknown broker", 37, 3, grown(("plain", 2, [{"broker_ids": [9]}])))
    yield Question("grow: only looked at", 37, 3, grown(("plain", 2, None), validate=True))
    yield Question("grow", 37, 3, grown(("plain", 3, None)))
    yield Question("metadata: unknown", 3, 12, metadata(("nope", None)))
    yield Question("metadata: no name of a topic", 3, 12, metadata(("a b", None)))
    yield Question("metadata: unknown id", 3, 12, metadata((None, UNKNOWN_ID)))
    yield Question("metadata: unknown id and a name", 3, 12, metadata(("plain", UNKNOWN_ID)))
    yield Question("metadata: of nothing", 3, 12, metadata())
    yield Question("delete: unknown", 20, 6, deleted(("nope", None)))
    yield Question("delete: unknown id", 20, 6, deleted((None, UNKNOWN_ID)))
    yield Question("delete: neither name nor id", 20, 6, deleted((None, None)))
    yield Question("delete: name and id", 20, 6, deleted(("plain", UNKNOWN_ID)))
    yield Question("delete", 20, 6, deleted(("b1", None)))


# -- settings ----------------------------------------------------------------------------------------------------------


def altered(name: str, *changes: tuple[str, int, str | None], kind: int = 2) -> Fields:
    configs = [{"name": one, "config_operation": operation, "value": value} for one, operation, value in changes]
    return {
        "resources": [{"resource_type": kind, "resource_name": name, "configs": configs}],
        "validate_only": False,
    }


def described(name: str, kind: int = 2) -> Fields:
    asked = {"resource_type": kind, "resource_name": name, "configuration_keys": ["retention.ms", "cleanup.policy"]}
    return {"resources": [asked], "include_synonyms": False, "include_documentation": False}


def on_settings() -> Iterator[Question]:
    put, drop, append, subtract = range(4)
    yield Question("a topic for settings", 19, 4, created(topic("set")))
    changes = {
        "put": ("retention.ms", put, "5000"),
        "put what is no number": ("retention.ms", put, "soon"),
        "put what is no setting": ("nope", put, "1"),
        "put nothing": ("retention.ms", put, None),
        "append to a number": ("retention.ms", append, "5"),
        "append": ("cleanup.policy", append, "compact"),
        "append once more": ("cleanup.policy", append, "compact"),
        "append what is no policy": ("cleanup.policy", append, "zap"),
        "subtract": ("cleanup.policy", subtract, "compact"),
        "subtract what is not there": ("cleanup.policy", subtract, "zap"),
        "drop": ("retention.ms", drop, None),
        "drop once more": ("retention.ms", drop, None),
    }
    for name, change in changes.items():
        yield Question(f"alter: {name}", 44, 1, altered("set", change))
    yield Question("alter: twice", 44, 1, altered("set", ("retention.ms", put, "1"), ("retention.ms", put, "2")))
    yield Question("alter: an unknown topic", 44, 1, altered("nope", ("retention.ms", put, "1")))
    yield Question("alter: an unknown kind", 44, 1, altered("set", kind=77))
    yield Question("alter: nothing", 44, 1, altered("set"))
    yield Question("describe: an unknown topic", 32, 4, described("nope"))
    yield Question("describe: an unknown kind", 32, 4, described("set", 77))
    yield Question("describe: an unknown broker", 32, 4, described("99", 4))
    yield Question("describe: no number of a broker", 32, 4, described("abc", 4))


# -- records -----------------------------------------------------------------------------------------------------------


def batch(value: bytes | None = b"v", key: bytes | None = b"k", at_ms: int = NOW_MS, **more: Any) -> bytes:
    return bytes(build_batch([NewRecord(key, value, (), at_ms)], **more))


def with_field(made: bytes, place: int, form: str, value: int, *, sealed: bool = True) -> bytes:
    """The batch with another number at a place, and a matching checksum."""
    changed = bytearray(made)
    pack_into(form, changed, place, value)
    if sealed:
        pack_into(">I", changed, 17, crc32c(bytes(changed[21:])))
    return bytes(changed)


def produced(
    records: bytes | None, name: str = "rec", partition: int = 0, acks: int = -1, txn: str | None = None
) -> Fields:
    part = {"index": partition, "records": records}
    topics = [{"name": name, "partition_data": [part]}]
    return {"transactional_id": txn, "acks": acks, "timeout": ms(5_000), "topic_data": topics}


def on_records() -> Iterator[Question]:
    topics = (topic("rec"), topic("comp", configs={"cleanup.policy": "compact"}))
    small = topic("small", configs={"max.message.bytes": "1000"})
    yield Question("topics for records", 19, 4, created(*topics, small))
    asked = {
        "one record": produced(batch()),
        "acks=1": produced(batch(), acks=1),
        "acks=2": produced(batch(), acks=2),
        "an unknown topic": produced(batch(), "nope"),
        "an unknown partition": produced(batch(), partition=9),
        "partition -1": produced(batch(), partition=-1),
        "no bytes": produced(b""),
        "half a batch": produced(batch()[:40]),
        "two batches": produced(batch() + batch()),
        "another checksum": produced(with_field(batch(), 17, ">I", 5, sealed=False)),
        "one record too many": produced(with_field(batch(), 57, ">i", 2)),
        "no records": produced(with_field(batch(), 57, ">i", 0)),
        "a count below zero": produced(with_field(batch(), 57, ">i", -1)),
        "a last offset of its own": produced(with_field(batch(), 23, ">i", 5)),
        "a batch of the broker's": produced(with_field(batch(), 21, ">h", 0x20)),
        "bits that mean nothing": produced(with_field(batch(), 21, ">h", 0x80)),
        "a leader's epoch": produced(with_field(batch(), 12, ">i", 9, sealed=False)),
        "a size of 0": produced(with_field(batch(), 8, ">i", 0, sealed=False)),
        "without a key, compacted": produced(batch(key=None), "comp"),
        "a tombstone": produced(batch(None), "comp"),
        "too large": produced(batch(b"x" * 2_000), "small"),
        "just not too large": produced(batch(b"x" * 900), "small"),
        "without a time": produced(batch(at_ms=-1)),
        "at the beginning of time": produced(batch(at_ms=0)),
        "an empty key": produced(batch(key=b"")),
    }
    yield from (Question(f"produce: {name}", 0, 9, fields) for name, fields in asked.items())
    yield from _on_sequences()
    yield from _on_offsets()


def _on_sequences() -> Iterator[Question]:
    def learn(state: State, answer: Any) -> None:
        state["producer"] = answer.producer_id

    def sent(sequence: int, count: int = 1, epoch: int = 0, other: int = 0) -> Any:
        records = [NewRecord(b"k", b"v", (), NOW_MS)] * count
        return lambda state: produced(
            bytes(
                build_batch(
                    records, producer_id=state["producer"] + other, producer_epoch=epoch, base_sequence=sequence
                )
            )
        )

    new = {"transactional_id": None, "transaction_timeout": ms(60_000), "producer_id": -1, "producer_epoch": -1}
    yield Question("a producer", 22, 4, new, learn)
    asked = {
        "0 and 1": sent(0, 2),
        "0 and 1 again": sent(0, 2),
        "2": sent(2),
        "a gap": sent(5),
        "half of it again": sent(2, 2),
        "one of two again": sent(1),
        "an epoch that never was": sent(5, epoch=1),
        "the next epoch": sent(0, epoch=1),
        "the epoch before": sent(3),
        "an unknown producer from 0": sent(0, other=5_000),
        "an unknown producer from 9": sent(9, other=6_000),
        "around the end": sent(2**31 - 1, 2, other=7_000),
        "behind the end": sent(1, other=7_000),
    }
    yield from (Question(f"sequence: {name}", 0, 9, fields) for name, fields in asked.items())


def _on_offsets() -> Iterator[Question]:
    def listed(at: int, name: str = "rec", partition: int = 0, epoch: int = -1, replica: int = -1) -> Fields:
        part = {"partition_index": partition, "current_leader_epoch": epoch, "timestamp": at}
        return {"replica_id": replica, "isolation_level": 0, "topics": [{"name": name, "partitions": [part]}]}

    for at in (-4, -5, -6, -100):
        yield Question(f"offsets: at {at}", 2, 8, listed(at, "small"))
    for name, fields in {
        "an unknown topic": listed(-1, "nope"),
        "an unknown partition": listed(-1, partition=9),
        "an epoch to come": listed(-1, epoch=5),
        "no epoch at all": listed(-1, epoch=-2),
    }.items():
        yield Question(f"offsets: {name}", 2, 7, fields)

    def cut(offset: int, name: str = "rec", partition: int = 0) -> Fields:
        part = {"partition_index": partition, "offset": offset}
        return {"topics": [{"name": name, "partitions": [part]}], "timeout": ms(5_000)}

    for name, fields in {
        "below zero": cut(-2),
        "beyond the end": cut(10**6),
        "of an unknown topic": cut(0, "nope"),
        "of an unknown partition": cut(0, partition=9),
        "of a compacted topic": cut(0, "comp"),
    }.items():
        yield Question(f"delete records: {name}", 21, 2, fields)
