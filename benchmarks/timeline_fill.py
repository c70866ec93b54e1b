"""Fills the timelines of a data directory with millions of messages, through the store's own code.

A broker starts and stops first, because a broker rejects a directory that has timelines and no owner file.

Messages are written in batches of ten thousand, and many batches share one transaction. On a long timeline with random
due times nearly every message is on another page, so a page is written once for several messages. Where the order does
not matter for the measurement, messages are written in due-time order, which is faster still.
"""

import asyncio
import os
import random
import tempfile
import time
from pathlib import Path

from tidemill.app.data_directory import TIMELINES
from tidemill.model.message_ids import new_id
from tidemill.testing import Broker
from tidemill.timelines.core.buckets import BUCKETS
from tidemill.timelines.core.message import NewMessage
from tidemill.timelines.core.timeline import Create, MakeReady
from tidemill.timelines.sqlite import open_store

BATCH = 10_000
BATCHES_AT_ONCE = 30
BODY = bytes(100)
SEED = 1
DRAWN_MS = 1_700_000_000_000
"""The assumed creation time of the ids: older than any id of a client, so that new ids follow them in the index."""


async def fill(path: Path, name: str, pending: int, start_ms: int, end_ms: int, *, ordered: bool) -> None:
    """Create the timeline with this many messages, due between the two times; ids grow with time, like real ones."""
    store = await open_store(path)
    await store.govern(Create(name))
    await store.govern(MakeReady(name))
    draw = random.Random(SEED).random
    reach_ms = end_ms - start_ms
    waiting: list[asyncio.Task[object]] = []
    for first in range(0, pending, BATCH):
        batch = [
            NewMessage(
                new_id(DRAWN_MS, number),
                start_ms + int((number / pending if ordered else draw()) * reach_ms),
                BODY,
                int(draw() * BUCKETS),
            )
            for number in range(first, min(pending, first + BATCH))
        ]
        waiting.append(asyncio.create_task(store.schedule(name, batch)))
        await asyncio.sleep(0)
        if len(waiting) == 2 * BATCHES_AT_ONCE:  # one half is written while the other is generated
            await asyncio.gather(*waiting[:BATCHES_AT_ONCE])
            del waiting[:BATCHES_AT_ONCE]
    await asyncio.gather(*waiting)
    await store.close()


async def filled(folder: str, name: str, pending: int, start_ms: int, end_ms: int, *, ordered: bool = False) -> None:
    """Make a data directory with a filled timeline, and print how long the filling took."""
    await asyncio.to_thread(make_directory, folder)
    begun = time.perf_counter()
    await fill(Path(folder, TIMELINES), name, pending, start_ms, end_ms, ordered=ordered)
    print(f"pending: {pending:,} messages, straight into the store in {time.perf_counter() - begun:.0f} s", flush=True)


def make_directory(folder: str) -> None:
    """Make an empty data directory, with its owner file: start a broker and stop it."""
    with Broker(process=True, data_dir=folder):
        pass


async def kept(home: Path, name: str, pending: int, start_ms: int, end_ms: int) -> Path:
    """A data directory with that timeline: from an earlier run, or a new one."""
    folder = home / f"{name}-{pending}"
    if await asyncio.to_thread(folder.exists):
        print(f"pending: {pending:,} messages, from {folder}", flush=True)
        return folder
    with tempfile.TemporaryDirectory(dir=home) as making:  # renamed when it is complete
        await filled(f"{making}/data", name, pending, start_ms, end_ms)
        await asyncio.to_thread(os.rename, f"{making}/data", folder)
    return folder
