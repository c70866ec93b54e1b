"""Checks the batches of one partition before the writer appends them. Decodes large batches on a thread.

Some topics need decoded records: compacted topics, topics with another codec, topics that check every record or
schedule records. Small uncompressed batches are decoded on the event loop. All other batches are decoded one at a time,
on one thread for the whole process. This bounds the memory for decompressed records to one batch
(DECOMPRESSED_BYTES_MAX), however many connections send batches. It also keeps the event loop free for other clients.
Each partition has at most one batch on the thread, so partitions take turns.

Batches of a partition must keep their order, because producers number their batches. A batch that arrives while another
is being decoded waits behind it. `verify` runs last, and nothing may await after it. It confirms that the batch's
transaction is open, and the batch must reach the log before an end marker can.
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
"""Uncompressed batches up to this size are decoded on the event loop, which takes a few milliseconds at most."""
WALKED_IN_PLACE_MAX = 4_000
"""Uncompressed batches of up to this many records are checked on the event loop, for a few milliseconds at most."""
_OPENER = ThreadPoolExecutor(max_workers=1, thread_name_prefix="tidemill-opener")

Admitted: TypeAlias = tuple[bytearray | memoryview, BatchHeader]
Verify: TypeAlias = Callable[[], Awaitable[None]]
_T = TypeVar("_T")


class BatchAdmission:
    """Keeps the order in which the batches of one partition are checked."""

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
        """Return the batch as the topic stores it. `inspect` is an additional check that decodes the batch."""
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
    """Whether the batch is small and uncompressed, so that its size is known before it is decoded."""
    return header.codec == Codec.NONE and header.size <= OPENED_IN_PLACE_BYTES_MAX


async def run_aside(work: Callable[[], _T]) -> _T:
    """Run work that decodes a batch on the decoding thread."""
    return await asyncio.get_running_loop().run_in_executor(_OPENER, work)
