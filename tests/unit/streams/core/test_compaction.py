"""Compaction against a model: a log as a list of batches, and a reader of committed records like Kafka's clients."""

import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemill.model.topic_settings import parse
from tidemill.records.build import MarkerType, NewRecord, build_batch, end_marker, marker_of
from tidemill.records.compression import Codec
from tidemill.records.header import HEADER_SIZE, Buffer, place, read_header, seal
from tidemill.records.read import read_records
from tidemill.records.record import Record
from tidemill.streams.core.aborted import AbortedRange
from tidemill.streams.core.compaction import (
    ENTRY_BYTES,
    GROUP_OFFSETS_MAX,
    AbortedRecords,
    CompactionPlan,
    Compactor,
    KeyMap,
    groups,
    plan,
)
from tidemill.streams.core.producers import ProducerEntry, SentBatch
from tidemill.streams.core.retention import SegmentFacts

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
DELETE_RETENTION_MS = 24 * HOUR_MS


@dataclass
class Log:
    """A partition: its batches, what the leader knows of producers and transactions, and the clock."""

    batches: list[Buffer] = field(default_factory=list)
    aborted: list[AbortedRange] = field(default_factory=list)
    producers: dict[int, ProducerEntry] = field(default_factory=dict)
    open: dict[int, int] = field(default_factory=dict)
    committed: list[Record] = field(default_factory=list)
    pending: dict[int, list[Record]] = field(default_factory=dict)
    end_offset: int = 0
    clean_until: int = 0
    now_ms: int = NOW_MS

    @property
    def stable_offset(self) -> int:
        return min(self.open.values(), default=self.end_offset)

    def append(self, batch: bytearray) -> None:
        place(batch, 0, self.end_offset, 0)
        self.batches.append(bytes(batch))
        self.end_offset = read_header(batch).next_offset

    def write(self, records: list[NewRecord], producer_id: int = -1, codec: Codec = Codec.NONE) -> None:
        base = self.end_offset
        before = self.producers.get(producer_id)
        sequence = before.last_sequence + 1 if before else 0
        if producer_id < 0:
            self.append(build_batch(records, codec=codec))
        else:
            batch = build_batch(
                records,
                codec=codec,
                producer_id=producer_id,
                producer_epoch=0,
                base_sequence=sequence,
                transactional=True,
            )
            self.append(batch)
            sent = SentBatch(sequence, sequence + len(records) - 1, base, self.now_ms)
            self.producers[producer_id] = ProducerEntry(0, (sent,), self.now_ms)
            self.open.setdefault(producer_id, base)
        placed = [Record(base + i, r.timestamp, r.key, r.value, r.headers) for i, r in enumerate(records)]
        (self.pending.setdefault(producer_id, []) if producer_id >= 0 else self.committed).extend(placed)

    def end(self, producer_id: int, *, commit: bool) -> None:
        first = self.open.pop(producer_id)
        records = self.pending.pop(producer_id)
        if commit:
            self.committed.extend(records)
        else:
            self.aborted.append(AbortedRange(producer_id, first, self.end_offset, self.stable_offset))
        self.append(end_marker(producer_id, 0, commit, self.now_ms))

    def compact(self, end_offset: int | None = None, budget_bytes: int = 1 << 20) -> None:
        """One pass as the shell does it."""
        target = self.stable_offset if end_offset is None else min(end_offset, self.stable_offset)
        aborted = AbortedRecords(self.aborted)
        keys = KeyMap(aborted, budget_bytes=budget_bytes)
        end = self.clean_until
        for batch in self.batches:
            header = read_header(batch)
            if header.next_offset <= self.clean_until:
                continue
            if header.next_offset > target or not keys.cover(batch):
                break
            end = header.next_offset
        compactor = Compactor(
            keys,
            aborted,
            self.producers,
            end_offset=end,
            now_ms=self.now_ms,
            delete_retention_ms=DELETE_RETENTION_MS,
        )
        self.batches = [new for batch in self.batches if (new := compactor.replace(batch)) is not None]
        self.aborted = [entry for entry in self.aborted if entry not in compactor.emptied]
        self.clean_until = end

    def stored(self) -> list[Record]:
        return [r for batch in self.batches if not read_header(batch).control for r in read_records(batch)]

    def read_committed(self) -> list[Record]:
        """What a client shows: it drops a producer's records from the reported offset to the next abort marker."""
        reported = sorted(self.aborted, key=lambda entry: entry.first_offset)
        skipped: set[int] = set()
        seen: list[Record] = []
        for batch in self.batches:
            header = read_header(batch)
            if header.next_offset > self.stable_offset:
                break
            while reported and reported[0].first_offset <= header.last_offset:
                skipped.add(reported.pop(0).producer_id)
            if header.control:
                if marker_of(batch) is MarkerType.ABORT:
                    skipped.discard(header.producer_id)
            elif not (header.transactional and header.producer_id in skipped):
                seen += read_records(batch)
        return seen


def table(records: list[Record]) -> dict[bytes | None, bytes]:
    """The last value of each key, tombstones applied."""
    state: dict[bytes | None, bytes] = {}
    for record in sorted(records, key=lambda record: record.offset):
        if record.value is None:
            state.pop(record.key, None)
        else:
            state[record.key] = record.value
    return state


def new(key: bytes, value: bytes | None, timestamp: int = NOW_MS) -> NewRecord:
    return NewRecord(key, value, (), timestamp)


def random_step(rng: random.Random, log: Log) -> None:
    match rng.randrange(8):
        case 0 | 1 | 2:
            records = [
                new(b"k%d" % rng.randrange(6), rng.choice([None, b"v%d" % rng.randrange(99)]), log.now_ms)
                for _ in range(rng.randrange(1, 6))
            ]
            log.write(records, codec=rng.choice(list(Codec)))
        case 3 | 4:
            log.write([new(b"k%d" % rng.randrange(6), b"t%d" % rng.randrange(99))], producer_id=rng.randrange(3))
        case 5 if log.open:
            log.end(rng.choice(list(log.open)), commit=rng.random() < 0.5)
        case 6:
            log.now_ms += rng.randrange(2 * DELETE_RETENTION_MS)
        case _:
            log.compact(rng.randrange(log.end_offset + 1), budget_bytes=rng.choice([3, 10, 1000]) * ENTRY_BYTES)


def check(log: Log) -> None:
    seen = log.read_committed()
    truth = [record for record in log.committed if record.offset < log.stable_offset]
    assert set(seen) <= set(truth), "a record changed, moved, or was aborted"
    assert table(seen) == table(truth)
    assert [r.offset for r in log.stored()] == sorted({r.offset for r in log.stored()})
    by_base = {read_header(batch).base_offset: read_header(batch) for batch in log.batches}
    for producer in log.producers.values():
        assert by_base[producer.batches[-1].base_offset].last_sequence == producer.last_sequence
    ends = [read_header(batch).next_offset for batch in log.batches]
    assert max(ends, default=0) == log.end_offset


@settings(max_examples=100)
@given(st.integers(0, 2**32))
def test_readers_see_the_same_table_whatever_happens(seed: int) -> None:
    rng = random.Random(seed)
    log = Log()
    for _ in range(40):
        random_step(rng, log)
        check(log)


@settings(max_examples=50)
@given(st.integers(0, 2**32))
def test_at_rest_a_pass_leaves_one_record_per_key_and_no_trace_of_the_dead(seed: int) -> None:
    rng = random.Random(seed)
    log = Log()
    for _ in range(30):
        random_step(rng, log)
    for producer_id in list(log.open):
        log.end(producer_id, commit=False)
    expected = table(log.committed)
    for _ in range(3):
        log.compact()
        check(log)
        log.now_ms += DELETE_RETENTION_MS
    log.producers.clear()  # they expire
    for _ in range(3):
        log.write([new(b"other", b"")])  # so that the last batch, which always stays, is none of those before
        log.compact()
        log.now_ms += DELETE_RETENTION_MS
    stored = [record for record in log.stored() if record.key != b"other"]
    assert {record.key: record.value for record in stored} == expected
    assert len(stored) == len(expected)
    assert log.aborted == []
    with_records = {read_header(batch).producer_id for batch in log.batches if not read_header(batch).control}
    assert {read_header(batch).producer_id for batch in log.batches if read_header(batch).control} <= with_records


def test_a_tombstone_stays_for_its_time() -> None:
    log = Log()
    log.write([new(b"a", b"1"), new(b"b", b"1")])
    log.write([new(b"a", None)])
    log.write([new(b"c", b"1")])
    log.compact()
    assert [(r.key, r.value) for r in log.stored()] == [(b"b", b"1"), (b"a", None), (b"c", b"1")]
    log.now_ms += DELETE_RETENTION_MS - 1
    log.compact()
    assert (b"a", None) in [(r.key, r.value) for r in log.stored()]
    log.now_ms += 1
    log.compact()
    assert [(r.key, r.value) for r in log.stored()] == [(b"b", b"1"), (b"c", b"1")]


def test_the_last_batch_of_a_pass_stays_and_holds_the_end() -> None:
    log = Log()
    log.write([new(b"a", b"1")])
    log.write([new(b"a", None)])
    log.compact()
    log.now_ms += DELETE_RETENTION_MS
    log.compact()
    (last,) = log.batches
    assert (read_header(last).count, read_header(last).next_offset) == (0, 2)


def of_two_transactions() -> Log:
    """An aborted one, and a committed one that writes over it."""
    log = Log()
    log.write([new(b"a", b"1")], producer_id=1)
    log.end(1, commit=False)
    log.write([new(b"a", b"2")], producer_id=1)
    log.end(1, commit=True)
    log.write([new(b"z", b"")])
    return log


def test_a_marker_outlives_its_records_and_the_reported_transaction_goes_first() -> None:
    log = of_two_transactions()
    log.compact()
    assert len(log.aborted) == 1
    log.compact()
    assert log.aborted == []
    markers = [batch for batch in log.batches if read_header(batch).control]
    assert [marker_of(batch) for batch in markers] == [MarkerType.ABORT, MarkerType.COMMIT]
    log.now_ms += DELETE_RETENTION_MS
    log.compact()
    markers = [batch for batch in log.batches if read_header(batch).control]
    assert [marker_of(batch) for batch in markers] == [MarkerType.COMMIT]
    assert table(log.read_committed()) == {b"a": b"2", b"z": b""}


def test_a_marker_stays_while_its_transaction_is_reported_again_after_a_crash() -> None:
    log = of_two_transactions()
    log.compact()
    reported = log.aborted
    log.compact()
    log.aborted = list(reported)  # the pass was over for the log, but not for the checkpoint
    log.now_ms += DELETE_RETENTION_MS
    log.compact()
    log.aborted = list(reported)  # what readers get until the pass is over
    assert table(log.read_committed()) == {b"a": b"2", b"z": b""}
    log.aborted = []
    log.compact()
    assert [marker_of(batch) for batch in log.batches if read_header(batch).control] == [MarkerType.COMMIT]


def test_the_key_map_stops_when_it_is_full_and_always_takes_one_batch() -> None:
    keys = KeyMap(AbortedRecords([]), budget_bytes=4 * ENTRY_BYTES)
    assert keys.cover(build_batch([new(b"%d" % i, b"") for i in range(9)]))
    assert not keys.cover(build_batch([new(b"0", b"")]))
    assert len(keys) == 9
    keys = KeyMap(AbortedRecords([]), budget_bytes=4 * ENTRY_BYTES)
    assert keys.cover(build_batch([new(b"0", b""), new(b"1", b"")]))
    assert keys.cover(build_batch([new(b"0", b""), new(b"1", b"")], base_offset=2))
    assert keys.is_last(b"0", 2)
    assert not keys.is_last(b"0", 1)
    assert keys.is_last(b"unknown", 0)
    damaged = bytearray(build_batch([new(b"2", b"two")], base_offset=4))
    damaged[HEADER_SIZE] = 0xFF
    assert keys.cover(damaged), "it stays as it is, and the pass goes on behind it"
    assert len(keys) == 2


def test_records_without_key_go_and_what_cannot_be_read_stays() -> None:
    log = Log()
    log.write([NewRecord(None, b"1"), new(b"a", b"1")])
    junk = build_batch([new(b"a", b"2")])
    junk[22] = Codec.GZIP
    seal(junk, 0, len(junk))
    log.append(junk)
    log.write([new(b"b", b"1")])
    log.compact()
    assert [read_header(batch).codec for batch in log.batches] == [Codec.NONE, Codec.GZIP, Codec.NONE]
    assert [record.key for record in read_records(log.batches[0])] == [b"a"]


def segment(
    base: int, following: int, *, size: int = 100, newest_ms: int = NOW_MS, first_ms: int = NOW_MS
) -> SegmentFacts:
    return SegmentFacts(base, following, size, newest_ms, first_ms)


ROW = [segment(0, 10), segment(10, 20), segment(20, 30), segment(30, 35)]


@pytest.mark.parametrize(
    ("overrides", "clean_until", "stable", "expected"),
    [
        ({}, 0, 35, CompactionPlan(0, 30)),  # never the segment being written
        ({}, 10, 35, CompactionPlan(10, 30)),
        ({}, 20, 35, None),  # 100 dirty bytes of 300 are below half
        ({"min.cleanable.dirty.ratio": "0.3"}, 20, 35, CompactionPlan(20, 30)),
        ({"min.cleanable.dirty.ratio": "1"}, 0, 35, None),
        ({}, 30, 35, None),
        ({"min.cleanable.dirty.ratio": "0"}, 30, 35, None),
        ({}, 0, 29, CompactionPlan(0, 20)),  # what is not stable is not touched
        ({}, 0, 5, None),
        ({}, 15, 35, CompactionPlan(15, 30)),  # a pass may end within a segment
        ({}, 99, 35, CompactionPlan(0, 30)),  # the log was truncated since
        ({"cleanup.policy": "delete"}, 0, 35, None),
        ({"cleanup.policy": "compact,delete"}, 0, 35, CompactionPlan(0, 30)),
        ({"min.compaction.lag.ms": "60000"}, 0, 35, None),  # all too young
    ],
)
def test_a_pass_needs_enough_dirty_bytes(
    overrides: dict[str, str], clean_until: int, stable: int, expected: CompactionPlan | None
) -> None:
    topic = parse({"cleanup.policy": "compact"} | overrides)
    assert plan(ROW, topic, clean_until, stable, NOW_MS + 1000) == expected


def test_lags_bound_a_pass_from_both_sides() -> None:
    row = [
        segment(0, 10, size=1000),
        segment(10, 20, newest_ms=NOW_MS + HOUR_MS, first_ms=NOW_MS),
        segment(20, 30, newest_ms=NOW_MS + 3 * HOUR_MS),
        segment(30, 30),
    ]
    settings_of = {"cleanup.policy": "compact", "min.compaction.lag.ms": str(HOUR_MS)}
    assert plan(row, parse(settings_of), 10, 30, NOW_MS + 3 * HOUR_MS) is None
    overdue = parse(settings_of | {"max.compaction.lag.ms": str(2 * HOUR_MS)})
    assert plan(row, overdue, 10, 30, NOW_MS + 3 * HOUR_MS) == CompactionPlan(10, 20)
    assert plan(row, overdue, 10, 30, NOW_MS + 2 * HOUR_MS) is None


def test_there_is_nothing_to_plan_in_a_new_log() -> None:
    assert plan([segment(0, 0, size=0)], parse({"cleanup.policy": "compact"}), 0, 0, NOW_MS) is None


def neighbours(*sizes: int, offsets: int = 10) -> list[SegmentFacts]:
    return [
        SegmentFacts(place * offsets, (place + 1) * offsets, size, NOW_MS, NOW_MS) for place, size in enumerate(sizes)
    ]


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ((), []),
        ((100,), [[100]]),
        ((200,), [[200]]),
        ((60, 40, 1), [[60, 40], [1]]),
        ((60, 41, 59, 1), [[60], [41, 59], [1]]),
        ((10, 20, 30, 100, 10, 20), [[10, 20, 30], [100], [10, 20]]),
    ],
)
def test_neighbours_that_fit_into_one_segment_become_one(sizes: tuple[int, ...], expected: list[list[int]]) -> None:
    found = groups(neighbours(*sizes), 100)
    assert [[segment.size_bytes for segment in group] for group in found] == expected


def test_the_offsets_of_one_segment_fit_into_its_index() -> None:
    assert GROUP_OFFSETS_MAX == 2**31, "indexes have offsets of 32 bits"
    half = GROUP_OFFSETS_MAX // 2 + 1
    assert [len(group) for group in groups(neighbours(1, 1, 1, offsets=half), 100)] == [1, 1, 1]
    third = GROUP_OFFSETS_MAX // 3
    assert [len(group) for group in groups(neighbours(1, 1, 1, 1, offsets=third), 100)] == [3, 1]
