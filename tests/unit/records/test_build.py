from typing import Any

import pytest
from aiokafka.record.control_record import ABORT_MARKER, COMMIT_MARKER, ControlRecord
from tests.support.record_batches import NOW_MS, sample
from tests.unit.records.kafka_python import KafkaPythonBatch

from tidemill.model.errors import CorruptMessage, InvalidRecord
from tidemill.records.build import MarkerType, NewRecord, build_batch, end_marker, marker_of
from tidemill.records.compression import Codec
from tidemill.records.header import check_crc, read_header
from tidemill.records.read import read_records


def test_the_fields_of_a_batch() -> None:
    batch = build_batch(
        [NewRecord(b"k", b"v", timestamp=NOW_MS + 5), NewRecord(b"k", b"v", timestamp=NOW_MS)],
        base_offset=100,
        leader_epoch=4,
        codec=Codec.ZSTD,
        producer_id=1,
        producer_epoch=2,
        base_sequence=3,
        transactional=True,
        log_append_time=True,
    )
    header = read_header(batch)
    assert header[:4] == (100, len(batch) - 12, 4, 2)
    assert header[5:] == (0x1C, 1, NOW_MS + 5, NOW_MS + 5, 1, 2, 3, 2)


def test_a_batch_without_records_is_not_built() -> None:
    with pytest.raises(InvalidRecord):
        build_batch([])


@pytest.mark.parametrize(("commit", "kind"), [(True, MarkerType.COMMIT), (False, MarkerType.ABORT)])
def test_markers_are_what_the_clients_know(commit: bool, kind: Any) -> None:
    batch = end_marker(7, 3, commit, NOW_MS, coordinator_epoch=6)
    header = read_header(batch)
    check_crc(batch, 0, header)
    assert header.attributes == 0x30
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.count) == (7, 3, -1, 1)
    (record,) = read_records(batch)
    assert record.key == b"\x00\x00\x00" + bytes([commit])
    assert record.value == b"\x00\x00\x00\x00\x00\x06"
    assert marker_of(batch) is kind
    assert ControlRecord.parse(record.key) == (COMMIT_MARKER if commit else ABORT_MARKER)
    (theirs,) = KafkaPythonBatch(bytes(batch))
    assert (theirs.commit, theirs.abort) == (commit, not commit)


@pytest.mark.parametrize("key", [None, b"", b"\x00\x00\x00", b"\x00\x00\x00\x09"])
def test_other_batches_are_no_markers(key: bytes | None) -> None:
    with pytest.raises(CorruptMessage):
        marker_of(build_batch([NewRecord(key, b"")], control=True))


def test_data_is_no_marker() -> None:
    with pytest.raises(CorruptMessage):
        marker_of(build_batch(sample()))
