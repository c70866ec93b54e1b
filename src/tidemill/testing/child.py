"""Runs `tidemill serve` as a child process, until SIGTERM stops it or SIGKILL kills it.

The child reads a pipe whose other end the parent holds. When the parent ends, however it ends, the pipe closes and the
broker stops.
"""

import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from typing import IO

from tidemill.model.addresses import Address, parse_address
from tidemill.model.errors import TidemillError
from tidemill.settings import PREFIX

READY_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 60.0
READY = "tidemill ready "
LOG_TAIL = 2_000
SERVE = """
import os, runpy, signal, threading
def end_with_the_parent():
    os.read(0, 1)
    os.kill(os.getpid(), signal.SIGTERM)
threading.Thread(target=end_with_the_parent, daemon=True).start()
runpy.run_module("tidemill", run_name="__main__", alter_sys=True)
"""


SERVERS = ("kafka", "grpc", "http")
HTTPS = "https"
"""The name under which `addresses_of` has the HTTP server too, if it uses TLS."""


class ChildFailed(TidemillError):
    """The broker's process ended before it was ready, or did not stop cleanly."""


class Child:
    """One broker process. Its standard error goes to `log`, or to a temporary file that is deleted with the process."""

    def __init__(
        self,
        flags: Mapping[str, str],
        broker_settings: Mapping[str, str],
        variables: Mapping[str, str] | None = None,
        log: IO[bytes] | None = None,
    ) -> None:
        self._command = [sys.executable, "-P", "-c", SERVE, "serve"]
        for name, value in flags.items():
            self._command += [f"--{name}", value]
        for name, value in broker_settings.items():
            self._command += ["--set", f"{name}={value}"]
        self._variables = variables or {}
        self._process: subprocess.Popen[str] | None = None
        self._killed = False
        self._log: IO[bytes] = log or tempfile.TemporaryFile()  # noqa: SIM115 -- closed by stop

    @property
    def pid(self) -> int:
        """The process id."""
        if self._process is None:
            raise RuntimeError("the broker is not running; call start() first")
        return self._process.pid

    def start(self) -> Mapping[str, Address | None]:
        """Start the process, wait for the ready line and return the addresses in it."""
        environment: dict[str, str] = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}
        self._process = subprocess.Popen(  # noqa: S603 -- our own interpreter and module
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env={**environment, **self._variables},
            cwd=tempfile.gettempdir(),
            text=True,
        )
        lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=_read_lines, args=(self._process.stdout, lines), daemon=True).start()
        try:
            line = lines.get(timeout=READY_TIMEOUT_S)
        except queue.Empty:
            line = ""
        if not line.startswith(READY):
            self.kill()
            raise ChildFailed(f"the broker did not become ready: {self._log_tail()}")
        return addresses_of(line)

    def stop(self) -> None:
        """Stop cleanly, unless it was killed. ChildFailed if the broker ended by itself."""
        try:
            if self._process is not None and not self._killed:
                self._stop(self._process)
        finally:
            self._close_pipe()
            self._log.close()

    def kill(self) -> None:
        """Kill the process."""
        self._killed = True
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._close_pipe()

    def hold(self, *, held: bool) -> None:
        """Suspend the process, or resume it."""
        os.kill(self.pid, signal.SIGSTOP if held else signal.SIGCONT)

    def advance(self, ms: int) -> None:
        """Not supported: the clock of another process cannot be changed."""
        del ms
        raise RuntimeError("the clock of a broker process cannot be advanced; start it with Broker(process=False)")

    def _stop(self, process: "subprocess.Popen[str]") -> None:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            process.send_signal(signal.SIGCONT)  # a paused process does not handle SIGTERM
        try:
            code = process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise ChildFailed(f"the broker did not stop within {STOP_TIMEOUT_S:g} s: {self._log_tail()}") from None
        if code != 0:
            raise ChildFailed(f"the broker ended with code {code}: {self._log_tail()}")

    def _close_pipe(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()

    def _log_tail(self) -> str:
        size = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, size - LOG_TAIL))
        return self._log.read().decode(errors="replace").strip()


def addresses_of(ready_line: str) -> Mapping[str, Address | None]:
    """The addresses of a ready line by server, and by what is before `://`: the name of a listener, or `https`."""
    parts = dict(part.split("=", 1) for part in ready_line.removeprefix(READY).split())
    found: dict[str, Address | None] = {}
    for server in SERVERS:
        for each in parts[server].split(","):
            listener, _, at = each.rpartition("://")
            address = None if at == "none" else parse_address(at)
            found.setdefault(server, address)
            if listener:
                found[listener] = address
    return found


def _read_lines(stream: IO[str] | None, lines: "queue.Queue[str]") -> None:
    """Read to the end of the stream, so that the child never blocks on a full pipe. An empty line marks the end."""
    if stream is not None:
        with stream:
            for line in stream:
                lines.put(line)
    lines.put("")
