"""Decompressed records side by side: memory grows up to a limit and is used again."""

import numpy as np
import pytest

from tidemill.model.errors import CorruptMessage
from tidemill.records.arrow.buffers import FIRST_BYTES, DecompressedRecords
from tidemill.records.arrow.table import END, START
from tidemill.records.compression import Codec
from tidemill.records.incremental_compression import compress

CODECS = [codec for codec in Codec if codec is not Codec.NONE]


def contents(room: DecompressedRecords, batches: int) -> list[bytes]:
    memory, moved = room.laid(np.zeros((batches, END + START + 1), np.int64))
    return [bytes(memory[line[START] : line[END]]) for line in moved.tolist()]


@pytest.mark.parametrize("codec", CODECS)
def test_batches_lie_side_by_side_whatever_their_size(codec: Codec) -> None:
    room = DecompressedRecords()
    for _ in range(2):  # the second group finds the memory of the first
        pieces = [b"a" * 10, b"b" * 3 * FIRST_BYTES, b"c"]
        for piece in pieces:
            room.add(codec, compress(codec, piece))
        assert contents(room, 3) == pieces
        room.clear()
        assert not room


@pytest.mark.parametrize("codec", CODECS)
def test_more_than_the_limit_is_refused(codec: Codec) -> None:
    room = DecompressedRecords(limit_bytes=1000)
    room.add(codec, compress(codec, b"x" * 1000))
    room.add(codec, compress(codec, b"y" * 1000))  # the limit is of each batch
    with pytest.raises(CorruptMessage, match="1000 bytes"):
        room.add(codec, compress(codec, b"x" * 1001))
    assert room.used == 2000


@pytest.mark.parametrize("codec", CODECS)
def test_noise_is_refused(codec: Codec) -> None:
    with pytest.raises(CorruptMessage):
        DecompressedRecords(limit_bytes=1000).add(codec, b"\x07noise\xff" * 9)
