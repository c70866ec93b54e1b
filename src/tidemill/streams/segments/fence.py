"""Ends a log after a disk error that leaves its content unknown."""

import errno
from collections.abc import Callable
from typing import NoReturn, TypeVar

import structlog

from tidemill.model.errors import KafkaStorageError
from tidemill.streams.interface import FlushFailed
from tidemill.streams.segments.reading import SegmentResources

T = TypeVar("T")
NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
LOGGER = structlog.get_logger(__name__)


class LogFence:
    """Rejects all calls once the log has failed. A failed flush ends all logs of the disk."""

    def __init__(self, shared: SegmentResources, folder: str) -> None:
        self._shared = shared
        self._folder = folder
        self._failed: BaseException | None = None

    @property
    def failed(self) -> BaseException | None:
        """The disk error that ended this log, or all logs of the disk."""
        return self._shared.failed or self._failed

    def check(self) -> None:
        """Raise an error if the log has failed."""
        if self.failed is not None:
            raise KafkaStorageError(f"log {self._folder} is fenced after a disk error: {self.failed}")

    def fail(self, error: BaseException) -> NoReturn:
        """End the log."""
        if isinstance(error, FlushFailed):
            self._shared.fence(error)
        elif self._failed is None:
            self._failed = error
            LOGGER.error("log_fenced", folder=self._folder, error=str(error))
        raise KafkaStorageError(f"log {self._folder} is fenced after a disk error: {error}") from error

    async def aside(self, call: Callable[[], T]) -> T:
        """Run a call on a thread of the disk. Any error but a full disk ends the log."""
        try:
            return await self._shared.disk.aside(call)
        except OSError as error:
            if error.errno in NO_SPACE and not isinstance(error, FlushFailed):
                raise KafkaStorageError(f"{self._folder}: {error}") from error
            self.fail(error)
