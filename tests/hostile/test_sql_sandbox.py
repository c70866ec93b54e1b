"""The query process without the allowlist in front of it: what it cannot do even when a query gets through."""

import asyncio
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidemill.query_engine.confinement import SECCOMP, is_supported
from tidemill.query_engine.process import Allowance, QueryFailed, QueryProcess, QueryProcessEnded, QueryProcesses

pytestmark = pytest.mark.skipif(not is_supported(), reason="this platform has no seccomp")

SECRET = "the-secret-of-the-broker"
ALLOWANCE = Allowance(512 << 20, 1 << 20, {"http_max_tries": 1, "http_connection_timeout": 1})


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as found:
        yield found


@pytest.fixture(scope="module")
def processes(runner: asyncio.Runner) -> Iterator[QueryProcesses]:
    """Shared: a process takes seconds to start."""
    found = QueryProcesses(ALLOWANCE, sandbox_required=True)
    yield found
    runner.run(found.close())


def environment_of(pid: int) -> bytes:
    return Path(f"/proc/{pid}/environ").read_bytes().strip(b"\0")


def error_output_of(pid: int) -> Path:
    return Path(f"/proc/{pid}/fd/2").readlink()


async def run(process: QueryProcess, sql: str) -> bytes:
    request = {"what": "run", "sql": sql, "form": "TabSeparated", "rows": [], "bytes_max": 1 << 20, "settings": {}}
    return await process.call(request)


def test_a_query_that_passes_the_allowlist_reads_nothing(
    runner: asyncio.Runner, processes: QueryProcesses, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files, the environment of the broker, the network, programs: refused by the kernel."""
    secret = tmp_path / "password.txt"
    secret.write_text(SECRET)
    secret.chmod(0o644)
    monkeypatch.setenv("TIDEMILL_SECRET", SECRET)
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.1)
        port = server.getsockname()[1]
        tricks = (
            f"SELECT file('{secret}')",
            f"SELECT arrayMap(file, ['{secret}'])",
            f"SELECT * FROM file('{secret}', 'LineAsString')",
            f"SELECT * FROM file('/proc/{os.getpid()}/environ', 'LineAsString')",
            "SELECT * FROM file('/proc/self/environ', 'LineAsString')",
            "SELECT * FROM file('/etc/passwd', 'LineAsString')",
            f"SELECT * FROM url('http://127.0.0.1:{port}/', 'LineAsString')",
            f"SELECT 1 INTO OUTFILE '{tmp_path}/written'",
            f"INSERT INTO FUNCTION file('{tmp_path}/written', 'CSV', 'a Int8') VALUES (1)",
            "SELECT * FROM executable('id', 'TSV', 'a String')",
            f"SELECT * FROM sqlite('{secret}', 't')",
        )

        async def attack() -> None:
            process = await processes.acquire()
            try:
                assert SECCOMP in process.protections
                for trick in tricks:
                    with pytest.raises(QueryFailed) as refused:
                        await run(process, trick)
                    assert SECRET not in str(refused.value), trick
                assert await run(process, "SELECT 1") == b"1\n"
                assert environment_of(process.pid) == b""
                assert error_output_of(process.pid) == Path(os.devnull)
            finally:
                processes.release(process)

        runner.run(attack())
        with pytest.raises(TimeoutError):
            server.accept()
    assert not (tmp_path / "written").exists()


def test_a_process_that_crashes_fails_its_query_only(runner: asyncio.Runner, processes: QueryProcesses) -> None:
    async def crash() -> None:
        process = await processes.acquire()
        query = asyncio.create_task(run(process, "SELECT count() FROM numbers(1000000000000)"))
        await asyncio.sleep(0.2)
        os.kill(process.pid, 11)
        with pytest.raises(QueryProcessEnded, match="status -11"):
            await query
        processes.release(process)
        other = await processes.acquire()
        assert await run(other, "SELECT 2") == b"2\n"
        processes.release(other)

    runner.run(crash())


ATTEMPTS = """
import ctypes, json, os, signal, socket, sys
from tidemill.query_engine import confinement
parent = os.getppid()
confinement.prepare(parent)
print(json.dumps(confinement.confine(1 << 28, parent)), flush=True)
libc = ctypes.CDLL(None)
for attempt in (
    lambda: os.open(sys.argv[1], os.O_RDONLY),
    lambda: os.open(f"/proc/{parent}/environ", os.O_RDONLY),
    lambda: os.listdir("/"),
    lambda: os.stat(sys.argv[1]),
    lambda: os.open("made", os.O_CREAT | os.O_WRONLY),
    lambda: socket.socket(),
    lambda: socket.socket(socket.AF_UNIX),
    lambda: os.fork(),
    lambda: os.execv("/bin/true", ["true"]),
    lambda: os.kill(parent, signal.SIGTERM),
    lambda: os.kill(parent, 0),
    lambda: os.setuid(0),
    lambda: os.nice(-5),
    lambda: os.memfd_create("x"),
    lambda: os.pidfd_open(parent),
):
    try:
        attempt()
        print("done", flush=True)
    except PermissionError:
        print("refused", flush=True)
"""


def test_code_in_the_process_can_open_start_and_signal_nothing(tmp_path: Path) -> None:
    """As if a query had taken over the process."""
    secret = tmp_path / "password.txt"
    secret.write_text(SECRET)
    found = subprocess.run(
        [sys.executable, "-I", "-c", ATTEMPTS, str(secret)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=tmp_path,
    )
    protections, *attempts = found.stdout.splitlines()
    assert SECCOMP in json.loads(protections), found.stderr
    assert attempts == ["refused"] * 15, found.stderr
