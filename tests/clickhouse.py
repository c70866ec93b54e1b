"""Servers for tests that need ClickHouse: the front over the embedded engine, in processes of their own."""

import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parent.parent


class Server:
    """A front that can be killed and comes back at the same port with the same data."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, 0
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "tests.clickhouse_front", str(self.folder), str(self.port)]
        self._process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def fault(self, **faults: float) -> None:
        """Misbehave from now on, as the front says it."""
        asked = "&".join(f"{name}={value}" for name, value in faults.items())
        urllib.request.urlopen(f"http://127.0.0.1:{self.port}/fault?{asked}", data=b"", timeout=60).read()

    def ask(self, sql: str) -> str:
        url = f"http://127.0.0.1:{self.port}/?database=tidemill"
        found: bytes = urllib.request.urlopen(url, data=sql.encode(), timeout=60).read()
        return found.decode().strip()


@contextmanager
def running(folder: Path, count: int) -> Iterator[list[Server]]:
    servers = [Server(folder / str(number)) for number in range(count)]
    try:
        for server in servers:
            server.start()
        yield servers
    finally:
        for server in servers:
            server.kill()
