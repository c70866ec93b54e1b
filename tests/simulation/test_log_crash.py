"""The log is stopped at every operation of its disk in turn; the next start must find a clean prefix with all that was
promised.

One history of appends, rolls, deletions, truncations and retention is drawn from a seed and run once per operation of
the disk: that operation fails in some way, and at the end the power is cut or the process killed.
"""

from random import Random

import pytest

from tidemill.model.errors import KafkaError
from tidemill.model.topic_settings import TopicSettings, parse
from tidemill.records.build import NewRecord, build_batch
from tidemill.records.header import iter_headers
from tidemill.streams.opener import opener
from tidemill.streams.partition import Partition
from tidemill.streams.segments import SegmentStore
from tidemill.testing.faults import Fault, SimDisk

STEPS = 40
HOUR_MS = 3_600_000
PRODUCER = 7
SMALL = {"segment.bytes": "9000", "index.interval.bytes": "500", "retention.ms": str(10 * HOUR_MS)}
SETTINGS = parse(SMALL)
PREALLOCATED = parse({**SMALL, "preallocate": "true", "file.delete.delay.ms": "0"})


class History:
    """What was asked of the log and what it promised."""

    def __init__(self) -> None:
        self.batches: dict[int, tuple[int, bytes]] = {}  # base offset -> next offset, payload behind the header
        self.promised_end = 0
        self.start_low = 0
        self.start_high = 0
        self.cut_low = 2**62
        self.retry: tuple[bytes, int] | None = None
        self.sequence = 0
        self.refused = 0


async def open_log(disk: SimDisk, clock: list[int], settings: TopicSettings = SETTINGS) -> Partition:
    return await opener(SegmentStore(disk), lambda: clock[0])("t", 0, settings, 0)


def new_batch(random: Random, history: History, now_ms: int) -> bytearray:
    records = [NewRecord(b"k", random.randbytes(random.choice([10, 300, 3000])), (), now_ms)] * random.randint(1, 3)
    if random.random() < 0.6:
        return build_batch(records, producer_id=PRODUCER, producer_epoch=0, base_sequence=history.sequence)
    return build_batch(records)


async def append(log: Partition, random: Random, history: History, now_ms: int) -> None:
    batch = new_batch(random, history, now_ms)
    original = bytes(batch)
    acks = random.choice([-1, -1, 1])
    base_offset, count = log.log_end_offset, next(iter_headers(batch))[1].count
    before = history.batches.get(base_offset)
    history.batches[base_offset] = (base_offset + count, original[61:])
    try:
        done = await log.leader.append(batch, acks=acks)
    except KafkaError:
        history.refused += 1
        if log.log_end_offset == base_offset:
            history.batches.pop(base_offset)
            if before is not None:
                history.batches[base_offset] = before
        raise
    assert done.base_offset == base_offset
    numbered = next(iter_headers(original))[1].producer_id == PRODUCER
    if numbered:
        history.sequence += count
        history.retry = None  # an older batch may be out of the window of five
    if acks == -1:
        history.promised_end = max(history.promised_end, base_offset + count)
        history.retry = (original, base_offset) if numbered else history.retry


async def step(log: Partition, random: Random, history: History, clock: list[int]) -> None:
    clock[0] += random.choice([1000, HOUR_MS])
    choice = random.random()
    if choice < 0.7:
        await append(log, random, history, clock[0])
    elif choice < 0.78:
        target = random.randint(log.log_start_offset, log.high_watermark)
        history.start_high = max(history.start_high, target)
        history.start_low = max(history.start_low, await log.leader.delete_records(target))
    elif choice < 0.83:
        await cut(log, random, history)
    elif choice < 0.93:
        history.start_high = max(history.start_high, log.high_watermark)
        await log.maintain(clock[0])
        history.start_low = max(history.start_low, log.log_start_offset)
    else:
        await log._maintenance.save()
        history.promised_end = max(history.promised_end, log.log_end_offset)


async def cut(log: Partition, random: Random, history: History) -> None:
    target = random.randint(log.log_start_offset, log.log_end_offset)
    history.cut_low = min(history.cut_low, target)
    history.retry = None
    await log.follower.truncate(target)
    history.cut_low = 2**62
    history.promised_end = min(history.promised_end, log.log_end_offset)
    history.batches = {base: kept for base, kept in history.batches.items() if base < log.log_end_offset}
    known = [one for one in log.producers() if one.producer_id == PRODUCER]
    history.sequence = known[0].last_sequence + 1 if known else history.sequence


async def run_history(
    seed: int, fail_at: int, fault: Fault, settings: TopicSettings = SETTINGS
) -> tuple[SimDisk, History, list[int]]:
    random = Random(seed)
    disk = SimDisk(Random(seed + fail_at), fail_at=fail_at, fault=fault)
    history, clock = History(), [1_000_000_000_000]
    try:
        log = await open_log(disk, clock, settings)
    except OSError:
        return disk, history, clock
    for _ in range(STEPS):
        try:
            await step(log, random, history, clock)
        except KafkaError:
            if log.failed is not None or disk.dead:
                break
    return disk, history, clock


async def stored(log: Partition) -> dict[int, tuple[int, bytes]]:
    found: dict[int, tuple[int, bytes]] = {}
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        piece = await log.reader.read(offset, 5000)
        assert piece.records, f"nothing at {offset} of {log.log_end_offset}"
        for buffer in piece.records:
            for at, header in iter_headers(buffer):
                assert header.base_offset == offset or not found, "a hole"
                found[header.base_offset] = (header.next_offset, bytes(buffer[at + 61 : at + header.size]))
                offset = header.next_offset
    return found


async def check_after(
    disk: SimDisk, history: History, clock: list[int], note: str, settings: TopicSettings = SETTINGS
) -> None:
    log = await open_log(disk, clock, settings)
    assert log._log.report.missing == (), f"{note}: a crash was taken for a loss"  # type: ignore[attr-defined]
    assert not any(name.endswith(".deleted") for name in disk.list("t/0")), note
    assert history.start_low <= log.log_start_offset <= max(history.start_high, history.start_low), note
    limit = min(history.promised_end, history.cut_low)
    promised = max((end for end, _ in history.batches.values() if end <= limit), default=0)
    assert log.log_end_offset >= promised, note
    found = await stored(log)
    for base_offset, batch in found.items():
        assert history.batches.get(base_offset) == batch, f"{note}: other bytes at {base_offset}"
    await check_retry(log, history, note)
    appended = await log.leader.append(build_batch([NewRecord(b"new", b"new", (), clock[0])]), acks=-1)
    assert appended.base_offset >= promised, note
    end_offset = log.log_end_offset
    await log.close()
    again = await open_log(disk.killed(), clock, settings)
    assert (again.log_end_offset, again._log.report.scanned_bytes) == (end_offset, 0), note  # type: ignore[attr-defined]
    assert set(found) <= set(await stored(again)), note
    await again.close()


async def check_retry(log: Partition, history: History, note: str) -> None:
    """The last promised batch of the producer is known again, so a retry is not stored twice."""
    if history.retry is None or history.cut_low != 2**62:
        return
    original, base_offset = history.retry
    if base_offset < log.log_start_offset:
        return
    end_offset = log.log_end_offset
    assert (await log.leader.append(bytearray(original), acks=-1)).base_offset == base_offset, note
    assert log.log_end_offset == end_offset, note


@pytest.mark.parametrize("power", [True, False], ids=["power-cut", "kill"])
@pytest.mark.parametrize(("seed", "settings"), [(1, SETTINGS), (2, SETTINGS), (3, PREALLOCATED)])
async def test_a_stop_at_every_operation_leaves_a_clean_prefix(seed: int, settings: TopicSettings, power: bool) -> None:
    async def run() -> int:
        fail_at = 0
        while True:
            disk, history, clock = await run_history(seed, fail_at, Fault.KILL, settings)
            after = disk.power_cut() if power else disk.killed()
            await check_after(after, history, clock, f"seed {seed} operation {fail_at}", settings)
            if not disk.dead:
                return fail_at
            fail_at += 1

    assert await run() > 80, "the history is too short to prove anything"


@pytest.mark.parametrize("fault", [Fault.EIO, Fault.ENOSPC, Fault.SHORT])
@pytest.mark.parametrize("seed", [11, 12])
async def test_an_error_at_every_operation_loses_nothing_that_was_promised(seed: int, fault: Fault) -> None:
    async def run() -> int:
        fail_at, refused = 0, 0
        while True:
            disk, history, clock = await run_history(seed, fail_at, fault)
            refused += history.refused
            await check_after(disk.power_cut(), history, clock, f"seed {seed} {fault.name} operation {fail_at}")
            if disk.operations <= fail_at:
                return refused
            fail_at += 1

    assert await run() > 10
