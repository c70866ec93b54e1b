"""Numbers of variable length in the compiled kernels: Kafka's zigzag encoding, of at most 64 bits."""

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tidemill.records.arrow.compiled import memory

continued = st.integers(128, 255)
last = st.integers(0, 127)
numbers = st.builds(lambda head, end: bytes([*head, end]), st.lists(continued, max_size=10), last | continued)


def expected(data: bytes, start: int, end: int) -> tuple[int, int] | None:
    raw = 0
    for place in range(10):
        if start + place >= end:
            return None
        byte = data[start + place]
        if place == 9 and byte > 1:
            return None  # it has more than 64 bits
        raw |= (byte & 127) << 7 * place
        if byte < 128:
            return (raw >> 1) ^ -(raw & 1), start + place + 1
    return None


@given(numbers, st.binary(max_size=3), st.integers(0, 3), st.integers(-2, 2))
@example(b"\xff" * 9 + b"\x01", b"", 0, 0)
@example(b"\xff" * 9 + b"\x02", b"", 0, 0)
@example(b"\x80" * 9 + b"\x00", b"", 0, 0)
@settings(max_examples=300)
def test_a_number_is_read_up_to_the_end_and_64_bits(number: bytes, before: bytes, after: int, cut: int) -> None:
    data = before + number + bytes(after)
    end = max(len(before), min(len(data), len(before) + len(number) + cut))
    value, at = memory.varint(np.frombuffer(data, np.uint8), np.int64(len(before)), np.int64(end))
    found = None if at == memory.BAD else (int(value), int(at))
    assert found == expected(data, len(before), end)


@given(st.integers(-(2**63), 2**63 - 1))
@example(2**63 - 1)
@example(-(2**63))
@settings(max_examples=100)
def test_a_number_is_written_as_it_is_read(number: int) -> None:
    out = np.zeros(12, np.uint8)
    end = int(memory.put(out, np.int64(1), np.int64(number)))
    assert expected(out.tobytes(), 1, 12) == (number, end)
    assert int(memory.width(np.int64(number))) == end - 1
    assert out[0] == 0
    assert not out[end:].any()
