"""Room for what a broker must still be able to write when its disk is full.

A file of `RESERVE_BYTES` is made at the start. When a write finds no room it is removed, and what it leaves belongs to
the broker's own topics (offsets of groups, states of transactions) and to checkpoints: records of producers are refused
until there is room again, so consumers go on, commit, and retention makes room. That there is room again is found by
making the file anew, which wants twice its size, so that the broker does not change its mind with every batch.

A small disk has a smaller reserve. One that is full at the start takes no records either until there is room. Where the
system cannot reserve, there is no reserve.
"""

import structlog

from tidemill.streams.interface import FULL, Disk

RESERVE_BYTES = 8 * 1024 * 1024
HALVINGS = 4
"""How often the reserve may be halved to fit on a small disk."""
RETAKE_INTERVAL_MS = 5_000
NAME = "reserve~"  # no topic can have this name
LOGGER = structlog.get_logger(__name__)


class Reserve:
    """The reserve of one disk; `size_bytes` 0 is none."""

    def __init__(self, disk: Disk, size_bytes: int) -> None:
        self._disk = disk
        self._size_bytes = size_bytes
        self._held = False
        self._retake_ms = 0
        self.given_up = False  # the disk is full, what room there is belongs to the broker itself

    def begin(self) -> None:
        """Reserve at the start as much of the room as fits; a disk that has none is full. Blocks."""
        for _ in range(HALVINGS if self._size_bytes else 0):
            error = self._try()
            if error is None:
                return
            if error.errno not in FULL:
                LOGGER.debug("no room is reserved", error=str(error))
                return
            self._size_bytes //= 2
        if self._size_bytes:
            self.given_up = True
            LOGGER.error("the disk is full: records are refused until there is room", wanted_bytes=2 * self._size_bytes)

    def take(self) -> None:
        """Reserve the room again, if there is twice as much; blocks."""
        error = self._try()
        if error is not None:
            LOGGER.debug("no room is reserved", error=str(error))
            return
        if self.given_up:
            LOGGER.info("there is room on the disk again, records are taken")
        self.given_up = False

    def give_up(self, error: BaseException | None) -> bool:
        """Free the room when the disk is full; whether that has freed any."""
        if not self._held or not isinstance(error, OSError) or error.errno not in FULL:
            return False
        try:
            self._disk.remove(NAME)
        except OSError:
            return False
        self._held, self.given_up = False, True
        LOGGER.error("the disk is full: records are refused until there is room", wanted_bytes=2 * self._size_bytes)
        return True

    def retake_due(self, now_ms: int) -> bool:
        """Whether it is time to look for room again; asked once per interval."""
        if not self.given_up or now_ms < self._retake_ms:
            return False
        self._retake_ms = now_ms + RETAKE_INTERVAL_MS
        return True

    def _try(self) -> OSError | None:
        try:
            self._disk.make_dir("")
            self._allocate()
        except OSError as error:
            return error
        self._held = True
        return None

    def _allocate(self) -> None:
        file = self._disk.open(NAME, create=True)
        try:
            if self._disk.size(NAME) < self._size_bytes:
                self._disk.allocate(file, 2 * self._size_bytes)
            self._disk.truncate(file, self._size_bytes)
        except OSError:
            self._disk.remove(NAME)
            raise
        finally:
            self._disk.close(file)
