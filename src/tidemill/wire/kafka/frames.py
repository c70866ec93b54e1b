"""Splits a byte stream into frames: a 32-bit size, then that many bytes.

The socket writes directly into memory that `space` returns. Between frames this is a scratch buffer that all
connections share, because a read ends before the next one starts. Whole frames are copied out of it once. Within an
incomplete frame it is the frame itself. The announced size is checked before anything is allocated, and a large frame
gets its memory as its bytes arrive. A frame of moderate size gets it at once, which saves a copy. The server allows
that (`eager_bytes`) while it has spare memory, so that an announced size alone costs nothing.
"""

from struct import Struct

from tidemill.model.errors import ProtocolViolation

SIZE_BYTES = 4
FRAME_BYTES_EAGER = 256 * 1024
"""A frame up to this size gets its memory at once; a larger one at most twice the bytes that have arrived."""
FRAME_BYTES_SPARING = 4 * 1024
"""The same limit while memory is short."""
_SIZE = Struct(">i")
_FOREIGN = ((b"\x16\x03", "TLS"), (b"PRI * HTTP/2", "gRPC"), (b"GET ", "HTTP"), (b"HEAD ", "HTTP"), (b"POST ", "HTTP"))
"""The first bytes of clients that use another protocol."""


class FrameReader:
    """The frames of one connection."""

    __slots__ = ("_filled", "_frame", "_rest", "_scratch", "_size", "eager_bytes", "frame_bytes_max")

    def __init__(self, scratch: memoryview, frame_bytes_max: int) -> None:
        self._scratch = scratch
        self.frame_bytes_max = frame_bytes_max
        self.eager_bytes = FRAME_BYTES_EAGER
        """A frame up to this size gets its memory at once. Larger for trusted peers."""
        self._rest = b""
        self._frame: bytearray | None = None
        self._filled = 0
        self._size = 0

    @property
    def partial_bytes(self) -> int:
        """The memory held for an incomplete frame, in bytes."""
        return len(self._frame if self._frame is not None else self._rest)

    @property
    def received_bytes(self) -> int:
        """The bytes of an incomplete frame that have arrived."""
        return self._filled if self._frame is not None else len(self._rest)

    def drop(self) -> None:
        """Free the incomplete frame. The rest of it will not be read."""
        self._frame = None
        self._rest = b""

    @property
    def partial_size(self) -> int:
        """The announced size of the incomplete frame, or 0."""
        return self._size if self._frame is not None else 0

    def space(self) -> memoryview:
        """Return the memory for the next bytes. The caller then reports their number to `received`."""
        frame = self._frame
        if frame is None:
            return self._scratch
        if self._filled == len(frame):
            grown = bytearray(min(self._size, 2 * len(frame)))
            grown[: self._filled] = frame
            self._frame = frame = grown
        return memoryview(frame)[self._filled :]

    def received(self, count: int) -> list[bytearray]:
        """Return the frames that these bytes complete. Raise ProtocolViolation when a size exceeds the limit."""
        if self._frame is None:
            return self._split(count)
        self._filled += count
        if self._filled < self._size:
            return []
        frame, self._frame = self._frame, None
        return [frame]

    def _split(self, count: int) -> list[bytearray]:
        data: memoryview = self._scratch[:count]
        if self._rest:
            data = memoryview(self._rest + bytes(data))
            self._rest = b""
        frames: list[bytearray] = []
        position, end = 0, len(data)
        while end - position >= SIZE_BYTES:
            size = _SIZE.unpack_from(data, position)[0]
            if not 0 <= size <= self.frame_bytes_max:
                raise ProtocolViolation(f"a frame announces {size} bytes{_spoken(bytes(data[position:]))}")
            position += SIZE_BYTES
            if end - position < size:
                self._begin(size, data[position:])
                return frames
            frames.append(bytearray(data[position : position + size]))
            position += size
        self._rest = bytes(data[position:])
        return frames

    def _begin(self, size: int, head: memoryview) -> None:
        self._size = size
        self._filled = len(head)
        self._frame = bytearray(min(size, max(self.eager_bytes, 2 * self._filled)))
        self._frame[: self._filled] = head


def _spoken(said: bytes) -> str:
    """Return which other protocol the client speaks, for the log."""
    found = next((name for opening, name in _FOREIGN if said.startswith(opening)), None)
    return (
        ""
        if found is None
        else f": the client speaks {found}, not Kafka's protocol; check the port and the security settings"
    )
