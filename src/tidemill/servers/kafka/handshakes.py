"""Runs TLS handshakes: a few at a time, each only when the client's first message has arrived.

A connection that sends nothing costs a file descriptor, and no memory of TLS. Handshakes take processor time, so more
of them at once would only take longer; the others wait in order. A client that stops in the middle of a handshake
loses its place to one that waits.
"""

import asyncio
import socket
from collections import OrderedDict
from collections.abc import Callable

from tidemill.security.tls import HANDSHAKE_TIMEOUT_S

HANDSHAKES_AT_ONCE = 100
STOPPED_S = 1.0
"""A handshake that takes longer loses its place if others wait."""
PARTIAL_PAUSE_S = 0.02
"""The pause before a first message is looked at again of which a part has arrived; it doubles each time."""
PARTIAL_PAUSE_S_MAX = 2.0
_HANDSHAKE_RECORD = 0x16
_RECORD_HEAD_BYTES = 5
_RECORD_BYTES_MAX = 16 * 1024 + 256


class Opening:
    """An accepted connection that is not established yet. `start` begins its handshake, `end` is called at its end."""

    __slots__ = ("accepted", "address", "end", "has_ended", "pause_s", "start", "task", "timer")

    def __init__(self, address: str, accepted: socket.socket) -> None:
        self.address = address
        self.accepted = accepted
        self.start: Callable[[], asyncio.Task[None]] | None = None
        self.end: Callable[[], None] | None = None
        self.task: asyncio.Task[None] | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.has_ended = False
        self.pause_s = PARTIAL_PAUSE_S

    def drop(self) -> None:
        """Close the connection."""
        if self.task is not None:
            self.task.cancel()
        elif self.end is not None:
            self.end()


class Handshakes:
    """The TLS handshakes of one server."""

    def __init__(self, waiting_max: int, on_heard: Callable[[Opening], None]) -> None:
        """`on_heard` is called when the first message of a connection has arrived."""
        self._on_heard = on_heard
        self._loop = asyncio.get_running_loop()
        self._waiting_max = waiting_max
        self._silent: set[Opening] = set()
        self._waiting: OrderedDict[Opening, None] = OrderedDict()
        self._running: OrderedDict[Opening, float] = OrderedDict()
        self._check: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._silent) + len(self._waiting) + len(self._running)

    def add(self, opening: Opening) -> None:
        """Begin when the client's first message has arrived."""
        self._silent.add(opening)
        opening.timer = self._loop.call_later(HANDSHAKE_TIMEOUT_S, opening.drop)
        self._loop.add_reader(opening.accepted, self._look, opening)

    def remove(self, opening: Opening) -> None:
        """Forget a connection that is established or closed."""
        if opening in self._silent:
            self._silent.discard(opening)
            self._loop.remove_reader(opening.accepted)
        if opening.timer is not None:
            opening.timer.cancel()
            opening.timer = None
        self._waiting.pop(opening, None)
        self._running.pop(opening, None)
        self._start_next()

    def close(self) -> None:
        """Close every connection that is not established."""
        if self._check is not None:
            self._check.cancel()
        for opening in [*self._waiting, *self._silent, *self._running]:
            opening.drop()

    def _look(self, opening: Opening) -> None:
        """Look at what has arrived, without taking it."""
        if opening not in self._silent:
            return
        try:
            head = opening.accepted.recv(_RECORD_BYTES_MAX, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            head = b""
        self._loop.remove_reader(opening.accepted)
        if not head:
            opening.drop()
        elif _is_whole(head):
            self._heard(opening)
        else:
            self._loop.call_later(opening.pause_s, self._look_again, opening)
            opening.pause_s = min(PARTIAL_PAUSE_S_MAX, 2 * opening.pause_s)

    def _look_again(self, opening: Opening) -> None:
        if opening in self._silent:
            self._loop.add_reader(opening.accepted, self._look, opening)

    def _heard(self, opening: Opening) -> None:
        self._silent.discard(opening)
        self._on_heard(opening)
        if len(self._waiting) >= self._waiting_max:
            opening.drop()
            return
        self._waiting[opening] = None
        self._start_next()

    def _start_next(self) -> None:
        while self._waiting and len(self._running) < HANDSHAKES_AT_ONCE:
            opening, _ = self._waiting.popitem(last=False)
            if opening.timer is not None:
                opening.timer.cancel()
                opening.timer = None
            if opening.start is not None:
                self._running[opening] = self._loop.time()
                opening.task = opening.start()
        if self._waiting and self._check is None:
            self._check = self._loop.call_later(STOPPED_S / 4, self._end_stopped)

    def _end_stopped(self) -> None:
        """End handshakes that have stopped, for those that wait; the oldest are first."""
        self._check = None
        spared = self._loop.time() - STOPPED_S
        stopped = [each for each, began in self._running.items() if began < spared]
        for opening in stopped[: len(self._waiting)]:
            opening.drop()
        self._start_next()


def _is_whole(head: bytes) -> bool:
    """Whether the first record has arrived; what is not TLS is whole, and fails."""
    if head[0] != _HANDSHAKE_RECORD:
        return True
    if len(head) < _RECORD_HEAD_BYTES:
        return False
    size = int.from_bytes(head[3:_RECORD_HEAD_BYTES], "big")
    return len(head) >= min(_RECORD_BYTES_MAX, _RECORD_HEAD_BYTES + size)
