"""Compaction stopped at every operation of the disk: the table that the log contains is never wrong.

Keyed records and transactions are written, compaction runs on the way; one operation of the disk kills the process.
The next start must give for every key the last promised value or a later one, and no record of an aborted
transaction.
"""

from random import Random

import pytest

from tidemill.model.errors import KafkaError
from tidemill.model.topic_settings import parse
from tidemill.records.build import NewRecord, build_batch
from tidemill.records.header import iter_headers
from tidemill.records.read import read_records
from tidemill.streams.opener import opener
from tidemill.streams.partition import Partition
from tidemill.streams.segments import SegmentStore
from tidemill.testing.faults import Fault, SimDisk

KEYS = 5
STEPS = 40
SETTINGS = parse(
    {
        "cleanup.policy": "compact",
        "segment.bytes": "1200",
        "min.cleanable.dirty.ratio": "0.01",
        "delete.retention.ms": "5000",
    }
)


class Table:
    """What readers of committed records must come to."""

    def __init__(self) -> None:
        self.tried: dict[bytes, list[bytes | None]] = {b"%d" % key: [None] for key in range(KEYS)}
        self.promised: dict[bytes, int] = dict.fromkeys(self.tried, 0)
        self.sequence = 0


async def open_log(disk: SimDisk, clock: list[int]) -> Partition:
    return await opener(SegmentStore(disk), lambda: clock[0])("t", 0, SETTINGS, 0)


async def write(log: Partition, random: Random, table: Table, now_ms: int, number: int) -> None:
    key = b"%d" % random.randrange(KEYS)
    value = b"value %d" % number if random.random() < 0.8 else None
    kind = random.choice(["plain", "commit", "abort"])
    record = NewRecord(key, value, (), now_ms)
    if kind == "plain":
        table.tried[key].append(value)
        await log.leader.append(build_batch([record]), acks=-1)
        table.promised[key] = len(table.tried[key]) - 1
        return
    batch = build_batch([record], producer_id=5, producer_epoch=0, base_sequence=table.sequence, transactional=True)
    await log.leader.append(batch, acks=-1)
    table.sequence += 1
    if kind == "commit":
        table.tried[key].append(value)
    await log.leader.append_marker(5, 0, commit=kind == "commit")
    table.promised[key] = len(table.tried[key]) - 1


async def read_table(log: Partition) -> dict[bytes, bytes | None]:
    """The last committed value of each key."""
    found: dict[bytes, bytes | None] = {b"%d" % key: None for key in range(KEYS)}
    offset = log.log_start_offset
    while offset < log.last_stable_offset:
        piece = await log.reader.read(offset, 600, committed=True)
        assert piece.records, f"nothing at {offset}"
        aborted = {one.producer_id: one.first_offset for one in reversed(piece.aborted)}
        for buffer in piece.records:
            for at, header in iter_headers(buffer):
                if header.control:
                    aborted.pop(header.producer_id, None)
                    later = [one for one in piece.aborted if one.first_offset > header.base_offset]
                    aborted.update((one.producer_id, one.first_offset) for one in reversed(later))
                elif not header.transactional or header.base_offset < aborted.get(header.producer_id, 2**62):
                    for record in read_records(memoryview(buffer)[at : at + header.size]):
                        assert record.key is not None
                        found[record.key] = record.value
                offset = header.next_offset
    return found


async def run_history(seed: int, fail_at: int) -> tuple[SimDisk, Table, list[int], int]:
    random, table, clock, passes = Random(seed), Table(), [1_000_000_000_000], 0
    disk = SimDisk(Random(seed + fail_at), fail_at=fail_at, fault=Fault.KILL)
    try:
        log = await open_log(disk, clock)
    except OSError:
        return disk, table, clock, passes
    for number in range(STEPS):
        clock[0] += 1000
        try:
            await write(log, random, table, clock[0], number)
            if number % 10 == 9:
                before = log.size_bytes
                await log.maintain(clock[0])
                await log.cleaned()
                passes += log.size_bytes < before
        except KafkaError:
            break
    return disk, table, clock, passes


@pytest.mark.parametrize("power", [True, False], ids=["power-cut", "kill"])
async def test_the_table_survives_a_stop_at_every_operation(power: bool) -> None:
    async def run(seed: int) -> None:
        fail_at = int(power)  # every second operation here, the others in the other half
        while True:
            disk, table, clock, passes = await run_history(seed, fail_at)
            note = f"seed {seed} operation {fail_at}"
            after = disk.power_cut() if power else disk.killed()
            log = await open_log(after, clock)
            assert log._log.report.missing == (), f"{note}: a crash was taken for a loss"  # type: ignore[attr-defined]
            found = await read_table(log)
            for key, value in found.items():
                assert value in table.tried[key][table.promised[key] :], f"{note}: key {key!r} is {value!r}"
            await log.close()
            if not disk.dead:
                assert passes >= 2, "too few passes to prove anything"
                return
            fail_at += 2

    await run(31)
