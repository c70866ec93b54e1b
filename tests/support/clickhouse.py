"""ClickHouse servers for tests: the HTTP front over the embedded engine, in processes of their own."""

import base64
import os
import ssl
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]


class Server:
    """A server that can be killed and restarted on the same port with the same data.

    `login` is the user:password that it requires. `secure` are the files of its certificate, key and certificate
    authority. With `asks_certificate` clients need one of this authority.
    """

    def __init__(
        self,
        folder: Path,
        login: str = "",
        secure: tuple[Path, Path, Path] | None = None,
        *,
        asks_certificate: bool = False,
        keeper: Path | None = None,
    ) -> None:
        self._keeper = keeper
        self.folder, self.port = folder, 0
        self._login, self._secure, self._asks_certificate = login, secure, asks_certificate
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        self.begin()
        self.wait()

    def begin(self) -> None:
        """Start without waiting. The engine takes a second to load."""
        files = map(str, self._secure[: 3 if self._asks_certificate else 2]) if self._secure else ()
        front = [sys.executable, "-m", "tests.support.clickhouse_front"]
        command = [*front, str(self.folder), str(self.port), self._login, *files]
        keeper = {} if self._keeper is None else {"KEEPER": str(self._keeper), "REPLICA": self.folder.name}
        environ = {**os.environ, **keeper}
        self._process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, env=environ)

    def wait(self) -> None:
        """Wait until it serves."""
        assert self._process is not None
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())

    @property
    def name(self) -> str:
        """The server's name in a broker's settings."""
        return f"127.0.0.1:{self.port}"

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def fault(self, **faults: float) -> None:
        """Inject faults from now on; `clickhouse_front` lists them."""
        asked = "&".join(f"{name}={value}" for name, value in faults.items())
        urllib.request.urlopen(f"http://127.0.0.1:{self.port}/fault?{asked}", data=b"", timeout=60).read()

    def ask(self, sql: str, database: str = "tidemill") -> str:
        trusted = ssl.create_default_context(cafile=self._secure[2]) if self._secure else None
        if trusted is not None and self._secure is not None and self._asks_certificate:
            trusted.load_cert_chain(*self._secure[:2])
        url = f"{'https' if trusted else 'http'}://127.0.0.1:{self.port}/?test=1&database={database}"
        proof = {"Authorization": f"Basic {base64.b64encode(self._login.encode()).decode()}"}
        request = urllib.request.Request(url, data=sql.encode(), headers=proof)
        found: bytes = urllib.request.urlopen(request, timeout=60, context=trusted).read()
        return found.decode().strip()


@contextmanager
def running(
    folder: Path,
    count: int,
    login: str = "",
    secure: tuple[Path, Path, Path] | None = None,
    *,
    asks_certificate: bool = False,
    keeper: Path | None = None,
) -> Iterator[list[Server]]:
    """Run servers. With a folder for `keeper` they are replicas of each other."""
    servers = [
        Server(folder / str(number), login, secure, asks_certificate=asks_certificate, keeper=keeper)
        for number in range(count)
    ]
    try:
        for server in servers:
            server.begin()
        for server in servers:
            server.wait()
        yield servers
    finally:
        for server in servers:
            server.kill()
