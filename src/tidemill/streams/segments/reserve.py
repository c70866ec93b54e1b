"""Reserves disk space for what a broker must still write when its disk is full.

A file of `RESERVE_BYTES` is created at start. When a write finds the disk full, the file is deleted. The freed space
belongs to the broker's own topics (offsets of groups, states of transactions) and to checkpoints. Producers' records
are rejected until there is space again. Meanwhile consumers can read and commit, and retention frees space. The broker
detects free space by creating the file again, which needs twice its size free. This prevents a change of state with
every batch.

A small disk has a smaller reserve. A disk that is full at start takes no records either until there is space. Where the
system cannot reserve space, there is no reserve.
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
    """The reserve of one disk. A `size_bytes` of 0 disables it."""

    def __init__(self, disk: Disk, size_bytes: int) -> None:
        self._disk = disk
        self._size_bytes = size_bytes
        self._held = False
        self._retake_ms = 0
        self.given_up = False  # the disk is full, and the free space belongs to the broker itself

    def begin(self) -> None:
        """Reserve as much space as fits, at start. A disk without any is full. Blocks."""
        for _ in range(HALVINGS if self._size_bytes else 0):
            error = self._try()
            if error is None:
                return
            if error.errno not in FULL:
                LOGGER.debug("disk_reserve_unavailable", error=str(error))
                return
            self._size_bytes //= 2
        if self._size_bytes:
            self.given_up = True
            LOGGER.error("disk_full", required_bytes=2 * self._size_bytes)

    def take(self) -> None:
        """Reserve the space again if twice as much is free. Blocks."""
        error = self._try()
        if error is not None:
            LOGGER.debug("disk_reserve_unavailable", error=str(error))
            return
        if self.given_up:
            LOGGER.info("disk_space_recovered")
        self.given_up = False

    def give_up(self, error: BaseException | None) -> bool:
        """Free the reserve when the disk is full. Return whether that freed any space."""
        if not self._held or not isinstance(error, OSError) or error.errno not in FULL:
            return False
        try:
            self._disk.remove(NAME)
        except OSError:
            return False
        self._held, self.given_up = False, True
        LOGGER.error("disk_full", required_bytes=2 * self._size_bytes)
        return True

    def retake_due(self, now_ms: int) -> bool:
        """Whether it is time to check for space again. Returns True once per interval."""
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
