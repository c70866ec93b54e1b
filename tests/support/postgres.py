"""A real PostgreSQL for tests: its own data directory, a free port, stopped after the tests.

The server refuses to run as root, so it then runs as the user `postgres`. `initdb` and `pg_ctl` are in Debian's
package. Tests that stop the server hard need durability. All others switch it off.
"""

import asyncio
import os
import pwd
import random
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

import asyncpg

START_SECONDS = 60
WAIT_SECONDS = 30
PORTS = (15_000, 32_000)

T = TypeVar("T")


def binaries() -> Path:
    """The folder of the newest PostgreSQL on this machine."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    on_path = shutil.which("initdb")
    if not found and on_path:
        return Path(on_path).parent
    assert found, "PostgreSQL is not installed: install the Debian package 'postgresql'"
    return found[-1].parent


class Postgres:
    """A server that can be stopped hard and restarted on the same port."""

    def __init__(self, home: Path, *, durable: bool, settings: Mapping[str, str]) -> None:
        self.port = free_port()
        self._home = home
        self._data = home / "data"
        self._durable = durable
        self._settings = settings
        self._made = False

    def create(self) -> None:
        """Create the data directory."""
        self._run("initdb", "-D", str(self._data), "-U", "tidemill", "-A", "trust", "-E", "UTF8", "--no-sync")

    def start(self) -> None:
        """Start the server and wait until it answers."""
        settings = {"port": self.port, "listen_addresses": "127.0.0.1", "unix_socket_directories": self._home}
        settings |= self._settings
        if not self._durable:
            settings |= {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
        options = " ".join(f"-c {name}={value}" for name, value in settings.items())
        log = str(self._home / "log")
        self._run("pg_ctl", "start", "-w", "-t", str(START_SECONDS), "-D", str(self._data), "-l", log, "-o", options)

    def stop(self, mode: str = "fast") -> None:
        """Stop the server: `fast`, or `immediate` like a crash."""
        self._run("pg_ctl", "stop", "-w", "-m", mode, "-D", str(self._data))

    @property
    def pid(self) -> int:
        """The main process of the server."""
        return int((self._data / "postmaster.pid").read_text().split()[0])

    def new_database(self) -> str:
        """The URL of an empty database: the one of all tests, emptied, because creating another takes longer."""
        client = ("-h", "127.0.0.1", "-p", str(self.port), "-U", "tidemill")
        if not self._made:
            self._run("createdb", *client, "tests")
            self._made = True
        self._run("psql", *client, "-q", "-c", "DROP SCHEMA IF EXISTS tidemill CASCADE", "tests")
        return f"postgresql://tidemill@127.0.0.1:{self.port}/tests"

    def _run(self, program: str, *arguments: str) -> None:
        user = "postgres" if os.geteuid() == 0 else None
        result = subprocess.run(
            [str(binaries() / program), *arguments],
            user=user,
            cwd=self._home,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE if program != "pg_ctl" else subprocess.DEVNULL,
            text=True,
        )
        log = self._home / "log"
        reported = result.stderr or (log.read_text() if log.exists() else "")
        assert result.returncode == 0, f"{program} failed: {reported}"


@contextmanager
def running_postgres(*, durable: bool = False, **settings: str) -> Iterator[Postgres]:
    """Run a server during the block, with its own settings if any are given."""
    home = Path(tempfile.mkdtemp(prefix="tidemill-pg-"))
    if os.geteuid() == 0:
        entry = pwd.getpwnam("postgres")
        os.chown(home, entry.pw_uid, entry.pw_gid)
    server = Postgres(home, durable=durable, settings=settings)
    try:
        server.create()
        server.start()
        yield server
    finally:
        with suppress(AssertionError):
            server.stop("immediate")
        shutil.rmtree(home, ignore_errors=True)


def free_port() -> int:
    """A free port below the range of outgoing connections, so that it stays free during a restart."""
    draw = random.Random(os.getpid() ^ time.monotonic_ns())
    while True:
        port = draw.randrange(*PORTS)
        with socket.socket() as listener:
            try:
                listener.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


async def behind(url: str, call: Awaitable[T], statement: str, *values: object) -> T:
    """The result of a call that waits for another connection's statement, which is then committed."""
    other, watch = await asyncpg.connect(url), await asyncpg.connect(url)
    transaction = other.transaction()
    await transaction.start()
    await (other.fetchrow(statement, *values) if values else other.execute(statement))
    task = asyncio.ensure_future(call)
    async with asyncio.timeout(WAIT_SECONDS):
        while not await watch.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"):
            assert not task.done(), "nothing was in the way"
            await asyncio.sleep(0.01)
    await transaction.commit()
    await asyncio.gather(other.close(), watch.close())
    return await task
