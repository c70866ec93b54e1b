"""What a batch is checked for before the event loop spends time on its records."""

import threading
from collections.abc import Iterator
from struct import pack_into

import pytest

from tidemill.model.errors import InvalidRecord, MessageTooLarge, RecordListTooLarge
from tidemill.model.topic_settings import parse
from tidemill.records.build import NewRecord, build_batch
from tidemill.records.compression import Codec
from tidemill.records.header import read_header, seal
from tidemill.records.read import read_records
from tidemill.records.record import Record
from tidemill.streams import search
from tidemill.streams.admission import WALKED_IN_PLACE_MAX, BatchAdmission
from tidemill.streams.core import admission
from tidemill.streams.interface import StoredBatch

COUNT_AT = 57
NOW_MS = 1_700_000_000_000


def batch_of(count: int, codec: Codec = Codec.NONE) -> bytearray:
    return build_batch([NewRecord(b"k", b"", timestamp=NOW_MS)] * count, codec=codec)


async def admit(batch: bytearray, overrides: dict[str, str]) -> object:
    return await BatchAdmission(lambda: NOW_MS).admit(batch, parse(overrides), 9)


async def test_a_batch_that_is_too_large_is_refused_before_its_records_are_walked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    walked: list[bytearray] = []
    monkeypatch.setattr(admission, "check_records", walked.append)
    with pytest.raises(MessageTooLarge):
        await admit(batch_of(1_000), {"max.message.bytes": "500"})
    assert walked == []


async def test_many_records_are_walked_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[str] = []
    monkeypatch.setattr(admission, "check_records", lambda _: threads.append(threading.current_thread().name))
    await admit(batch_of(10), {})
    await admit(batch_of(WALKED_IN_PLACE_MAX + 1), {})
    assert threads == [threading.main_thread().name, "tidemill-opener_0"]


async def test_lengths_that_do_not_fit_the_count_are_refused() -> None:
    batch = batch_of(3)
    pack_into(">i", batch, COUNT_AT, 2)
    pack_into(">i", batch, 23, 1)
    seal(batch, 0, len(batch))
    with pytest.raises(InvalidRecord, match="follow the last record"):
        await admit(batch, {})


@pytest.mark.parametrize("overrides", [{"cleanup.policy": "compact"}, {"tidemill.validate": "records"}])
async def test_a_batch_of_too_many_records_is_not_opened(
    monkeypatch: pytest.MonkeyPatch, overrides: dict[str, str]
) -> None:
    monkeypatch.setattr(admission, "RECORDS_OPENED_MAX", 100)
    await admit(batch_of(100, Codec.ZSTD), overrides)
    with pytest.raises(RecordListTooLarge, match="takes 100 at most"):
        await admit(batch_of(101, Codec.ZSTD), overrides)
    await admit(batch_of(101, Codec.ZSTD), {})


def test_the_largest_time_is_found_in_one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = build_batch([NewRecord(b"k", b"", timestamp=NOW_MS + number % 7) for number in range(50)])
    passes = []

    def counted(data: bytes) -> Iterator[Record]:
        passes.append(data)
        return iter(read_records(data))

    monkeypatch.setattr(search, "read_records", counted)
    found = search._largest_in(StoredBatch(read_header(batch), bytes(batch)), 0)
    assert found == (6, NOW_MS + 6, read_header(batch).leader_epoch)
    assert len(passes) == 1
