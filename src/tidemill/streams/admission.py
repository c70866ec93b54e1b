"""Checks the batches of one partition before they are written, and opens large ones in a thread.

A topic may ask for records to be opened: it is compacted, wants another codec, checks every record or schedules. Small
uncompressed batches are opened in place. All others are opened one at a time in one thread for the whole process, so
that the memory of decompressed records is that of one batch (DECOMPRESSED_BYTES_MAX), however many connections send
them, and so that other clients are served meanwhile. Partitions take turns: each has at most one batch in the thread.

Batches of a partition keep their order: one that comes while another is opened waits behind it, because producers
number their batches. `verify` runs last, and nothing waits after it: it finds the batch's transaction open, and the
batch must be on its way to the log before a marker can be.
"""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeAlias, TypeVar

from tidemill.model.topic_settings import TopicSettings
from tidemill.records.compression import Codec
from tidemill.records.header import BatchHeader
from tidemill.records.validate import check_produced
from tidemill.streams.core.admission import admit, check_opened, opens

OPENED_IN_PLACE_BYTES_MAX = 16 * 1024
"""Uncompressed batches up to this size are opened on the event loop: some milliseconds at most."""
WALKED_IN_PLACE_MAX = 4_000
"""Uncompressed batches of up to so many records are checked on the event loop: some milliseconds at most."""
_OPENER = ThreadPoolExecutor(max_workers=1, thread_name_prefix="tidemill-opener")

Admitted: TypeAlias = tuple[bytearray | memoryview, BatchHeader]
Verify: TypeAlias = Callable[[], Awaitable[None]]
_T = TypeVar("_T")


class BatchAdmission:
    """The order in which the batches of one partition are checked."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._pending = 0
        self._turn = asyncio.Lock()

    async def admit(
        self,
        batch: bytearray | memoryview,
        settings: TopicSettings,
        version: int,
        inspect: Callable[[], object] | None = None,
        verify: Verify | None = None,
    ) -> Admitted:
        """The batch as the topic stores it; `inspect` is a further check that opens it."""
        header = check_produced(batch, version=version)

        def check() -> Admitted:
            if inspect is not None:
                inspect()
            return admit(batch, header, settings, self._clock())

        opened = inspect is not None or opens(header, settings)
        if opened:
            check_opened(header, settings)
        aside = (opened and not opened_in_place(header)) or (
            header.codec == Codec.NONE and header.count > WALKED_IN_PLACE_MAX
        )
        if not aside and not self._pending:
            admitted = check()
            if verify is not None:
                await verify()
            return admitted
        self._pending += 1
        try:
            async with self._turn:
                admitted = await run_aside(check) if aside else check()
                if verify is not None:
                    await verify()
        finally:
            self._pending -= 1
        return admitted


def opened_in_place(header: BatchHeader) -> bool:
    """Whether the batch is small and says itself how large its records are."""
    return header.codec == Codec.NONE and header.size <= OPENED_IN_PLACE_BYTES_MAX


async def run_aside(work: Callable[[], _T]) -> _T:
    """Run work that opens a batch in the thread for it."""
    return await asyncio.get_running_loop().run_in_executor(_OPENER, work)
