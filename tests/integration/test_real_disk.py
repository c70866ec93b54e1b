"""The segment log on a real file system: names, restarts, a killed process, few file descriptors, many partitions."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from tidemill.model.topic_settings import parse
from tidemill.records.build import NewRecord, build_batch
from tidemill.records.header import iter_headers
from tidemill.streams.opener import opener
from tidemill.streams.partition import Partition
from tidemill.streams.segments import RealDisk, SegmentLog, SegmentStore
from tidemill.streams.segments.files import OpenFiles
from tidemill.streams.segments.reserve import RESERVE_BYTES

SMALL = parse({"segment.bytes": "4000", "index.interval.bytes": "300"})
LIMIT_S = 60
ACKED_MIN = 200

WRITER = """
import asyncio, sys, time
from pathlib import Path
from tidemill.model.topic_settings import parse
from tidemill.records.build import NewRecord, build_batch
from tidemill.streams.opener import opener
from tidemill.streams.segments import SegmentStore

async def main():
    settings = parse({"segment.bytes": "4000"})
    log = await opener(SegmentStore.at(Path(sys.argv[1])), lambda: int(time.time() * 1000))("t", 0, settings, 0)
    while True:
        number = log.log_end_offset
        done = await log.leader.append(build_batch([NewRecord(b"k", b"%d" % number, (), 1)]), acks=-1)
        print(done.base_offset, flush=True)

asyncio.run(main())
"""


def now_ms() -> int:
    return int(time.time() * 1000)


def batch(value: bytes) -> bytearray:
    return build_batch([NewRecord(b"k", value, (), now_ms())])


async def values(log: Partition) -> list[bytes]:
    """The values of all one-record batches, cut out of their bytes."""
    found: list[bytes] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        for buffer in (await log.reader.read(offset, 2000)).records:
            for at, header in iter_headers(buffer):
                assert header.base_offset == offset
                found.append(bytes(buffer[at + 61 : at + header.size]))
                offset = header.next_offset
    return found


async def test_files_have_their_public_names_and_survive_restarts(tmp_path: Path) -> None:
    sent: list[bytes] = []
    for generation in range(3):
        store = SegmentStore.at(tmp_path)
        log = await opener(store, now_ms)("orders", 2, SMALL, 0)
        assert await values(log) == sent
        for number in range(50):
            one = batch(b"%d-%d" % (generation, number))
            sent.append(bytes(one[61:]))
            await log.leader.append(one, acks=-1 if number % 3 else 1)
        await log.close()
        await store.close()
    assert (tmp_path / "reserve~").stat().st_blocks * 512 >= RESERVE_BYTES
    names = sorted(path.name for path in (tmp_path / "orders" / "2").iterdir())
    logs = [name for name in names if name.endswith(".log")]
    assert logs[0] == "00000000000000000000.log"
    assert len(logs) > 2
    assert {name.removesuffix(".log") + ".index" for name in logs} <= set(names)
    assert {name.removesuffix(".log") + ".timeindex" for name in logs} <= set(names)


async def test_a_killed_writer_loses_nothing_it_was_promised(tmp_path: Path) -> None:
    for _ in range(3):
        last = await asyncio.to_thread(write_and_kill, tmp_path)
        store = SegmentStore.at(tmp_path)
        log = await opener(store, now_ms)("t", 0, SMALL, 0)
        assert log.log_end_offset > last
        assert len(await values(log)) == log.log_end_offset
        await log.close()
        await store.close()


def write_and_kill(folder: Path) -> int:
    """The last offset that a writer acknowledged before it was killed."""
    with subprocess.Popen([sys.executable, "-c", WRITER, str(folder)], stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        acked = [int(writer.stdout.readline()) for _ in range(ACKED_MIN)]
        os.kill(writer.pid, signal.SIGKILL)
        acked += [int(line) for line in writer.stdout if line.endswith(b"\n")]
    return acked[-1]


async def test_a_torn_end_on_a_real_file_is_cut(tmp_path: Path) -> None:
    store = SegmentStore.at(tmp_path)
    log = await opener(store, now_ms)("t", 0, parse({}), 0)
    for number in range(10):
        await log.leader.append(batch(b"%d" % number), acks=-1)
    await store.close()  # as after a crash: no checkpoint
    path = tmp_path / "t" / "0" / f"{0:020d}.log"
    whole = path.read_bytes()
    for cut in range(1, len(batch(b"0"))):
        path.write_bytes(whole[:-cut])
        store = SegmentStore.at(tmp_path)
        log = await opener(store, now_ms)("t", 0, parse({}), 0)
        assert log.log_end_offset == 9
        assert len(await values(log)) == 9
        await store.close()
        assert len(path.read_bytes()) < len(whole) - cut or cut == len(batch(b"0"))


async def test_few_descriptors_are_enough_for_many_segments(tmp_path: Path) -> None:
    disk = RealDisk(tmp_path)
    store = SegmentStore(disk)
    store._shared.files = files = OpenFiles(disk, limit=8)
    open_one = opener(store, now_ms)
    logs = [await open_one("t", index, SMALL, 0) for index in range(12)]
    for number in range(60):
        await asyncio.gather(*(log.leader.append(batch(b"%d" % number), acks=-1) for log in logs))
    assert all(isinstance(log._log, SegmentLog) and len(log._log.segments()) > 1 for log in logs)
    for _ in range(2):
        found = await asyncio.gather(*(values(log) for log in logs))
        assert {len(one) for one in found} == {60}
        assert len(files) <= 8 + len(logs)
        for log in logs:
            assert isinstance(log._log, SegmentLog)
            log._log._tail.clear()
    await asyncio.gather(*(log.close() for log in logs))
    assert len(files) == 0
    await store.close()


async def test_many_idle_partitions_have_no_tasks_threads_or_files(tmp_path: Path) -> None:
    store = SegmentStore.at(tmp_path)
    open_one = opener(store, now_ms)
    logs = [await open_one("t", index, SMALL, 0) for index in range(300)]
    await asyncio.gather(*(log.maintain(now_ms()) for log in logs))
    assert len(asyncio.all_tasks()) == 1
    assert len(store._shared.files) == 0
    await asyncio.gather(*(log.close() for log in logs))
    await store.close()


async def test_reserved_room_is_given_back(tmp_path: Path) -> None:
    size = 1_000_000
    store = SegmentStore.at(tmp_path)
    settings = parse({"segment.bytes": str(size), "preallocate": "true"})
    log = await opener(store, now_ms)("t", 0, settings, 0)
    await log.leader.append(batch(b"one"), acks=-1)
    path = tmp_path / "t" / "0" / f"{0:020d}.log"
    assert path.stat().st_size == size
    again = await opener(SegmentStore.at(tmp_path), now_ms)("t", 0, settings, 0)  # as after a crash
    assert (again.log_end_offset, path.stat().st_size) == (1, len(batch(b"one")))
    await log.close()
    await store.close()
