"""A proxy that cuts connections repeatedly: between a request and its response, or in the middle of either."""

import asyncio
import random
import threading
from collections import Counter
from contextlib import suppress
from enum import Enum
from typing import Self

HOST = "127.0.0.1"
WAIT_S = 60
PIECE_BYTES = 64 * 1024
PIECES_BEFORE_A_CUT = (3, 20)
"""A connection lasts for this many pieces of bytes: enough to start, too few to finish."""


class Cut(Enum):
    """How the last piece of a connection is treated."""

    ANSWER_DROPPED = "answer dropped"
    ANSWER_TORN = "answer torn"
    REQUEST_DROPPED = "request dropped"
    REQUEST_TORN = "request torn"


REQUESTS = (Cut.REQUEST_DROPPED, Cut.REQUEST_TORN)
ANSWERS = (Cut.ANSWER_DROPPED, Cut.ANSWER_TORN)


class CuttingProxy:
    """Listens at `address` in a thread of its own and forwards connections to `target`."""

    def __init__(self, rng: random.Random) -> None:
        self.address = ""
        self.target = ""
        self.cutting = True
        self.cuts: Counter[Cut] = Counter()
        self._rng = rng
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._serve(),), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(WAIT_S)
        return self

    def __exit__(self, *_error: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(WAIT_S)
        self._loop.close()

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._connected, HOST, 0)
        self.address = f"{HOST}:{server.sockets[0].getsockname()[1]}"
        self._ready.set()
        await self._stop.wait()
        server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, _, port = self.target.rpartition(":")
        try:
            onward = await asyncio.open_connection(host, int(port))
        except OSError:
            writer.transport.abort()
            return
        how = self._rng.choice(list(Cut))
        after = self._rng.randrange(*PIECES_BEFORE_A_CUT)
        flows = [
            asyncio.create_task(self._flow(reader, onward[1], how if how in REQUESTS else None, after)),
            asyncio.create_task(self._flow(onward[0], writer, how if how in ANSWERS else None, after)),
        ]
        try:
            await asyncio.wait(flows, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for flow in flows:
                flow.cancel()
            writer.close()
            onward[1].close()

    async def _flow(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, how: Cut | None, after: int
    ) -> None:
        pieces = 0
        with suppress(ConnectionError):
            while piece := await source.read(PIECE_BYTES):
                pieces += 1
                if how is not None and pieces >= after and self.cutting:
                    self.cuts[how] += 1
                    if how in {Cut.ANSWER_TORN, Cut.REQUEST_TORN}:
                        sink.write(piece[: len(piece) // 2])
                    return
                sink.write(piece)
                await sink.drain()
