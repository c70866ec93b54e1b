"""Accepts the connections of listening sockets, a few at a time, so that the event loop does other work in between.

When the process has no more file descriptors it waits, and clients wait in the queue of the kernel. Trying again at
once would use up a core.
"""

import asyncio
import errno
import socket
from collections.abc import Callable, Sequence

import structlog

ACCEPTS_AT_ONCE = 64
"""Connections that are accepted before other work of the event loop continues."""
SHORTAGE_PAUSE_S = 0.1
_SHORTAGES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})

log = structlog.get_logger("tidemill.servers")


class AcceptLoop:
    """Calls `accepted` with each connection and the address of its client, until `stop`.

    `wait_s` is asked before each connection: above 0 the next ones are accepted so much later.
    """

    def __init__(
        self,
        listener: str,
        sockets: Sequence[socket.socket],
        accepted: Callable[[socket.socket, str], None],
        wait_s: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self._listener = listener
        self._sockets = list(sockets)
        self._accepted = accepted
        self._wait_s = wait_s
        self._loop = asyncio.get_running_loop()
        self._pause: asyncio.TimerHandle | None = None
        self._resume()

    def stop(self) -> None:
        """Accept no more connections, and close the sockets."""
        if self._pause is not None:
            self._pause.cancel()
        for listening in self._sockets:
            self._loop.remove_reader(listening)
            listening.close()
        self._sockets = []

    def _resume(self) -> None:
        self._pause = None
        for listening in self._sockets:
            self._loop.add_reader(listening, self._accept, listening)

    def _pause_for(self, wait_s: float) -> None:
        for listening in self._sockets:
            self._loop.remove_reader(listening)
        if self._pause is None:
            self._pause = self._loop.call_later(wait_s, self._resume)

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(ACCEPTS_AT_ONCE):
            wait_s = self._wait_s()
            if wait_s > 0:
                self._pause_for(wait_s)
                return
            try:
                connected, name = listening.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno in _SHORTAGES:
                    log.warning("connections_not_accepted", listener=self._listener, reason=str(error))
                    self._pause_for(SHORTAGE_PAUSE_S)
                    return
                continue  # this client has left already
            self._accepted(connected, str(name[0]))
