"""A cluster of real processes: etcd and some brokers, each of which can be killed and restarted."""

import asyncio
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.support.etcd import Etcd, running_etcd
from tests.support.postgres import free_port

from tidemill.cluster.etcd import EtcdCoordination
from tidemill.model.addresses import Address
from tidemill.testing.child import Child

TTL_MS = 4_000
WAIT_S = 60.0


class Brokers:
    """The brokers of one cluster, by number."""

    def __init__(
        self,
        etcd: Etcd,
        home: Path,
        count: int,
        settings: dict[str, str] | None = None,
        *,
        racks: bool = True,
        roles: Mapping[int, str] | None = None,
        variables: Mapping[str, str] | None = None,
        logs: Path | None = None,
        **flags: str,
    ) -> None:
        self.etcd = etcd
        self._variables = variables
        self._logs = logs
        self._roles = roles or {}
        self.servers: dict[int, Mapping[str, Address | None]] = {}
        self._flags = flags
        self._racks = racks
        self._url = etcd.new_folder()
        self._home = home
        self._settings = {"group.initial.rebalance.delay.ms": "0", **(settings or {})}
        self._ports = {number: free_port() for number in range(1, count + 1)}
        self._running: dict[int, Child] = {}

    @property
    def bootstrap(self) -> str:
        """The bootstrap address for clients."""
        return ",".join(f"127.0.0.1:{port}" for port in self._ports.values())

    def address(self, number: int) -> str:
        """The address of one broker."""
        return f"127.0.0.1:{self._ports[number]}"

    def home(self, number: int) -> Path:
        """The data directory of a broker."""
        return self._home / f"broker{number}"

    def keys(self, prefix: str) -> list[str]:
        """The keys in coordination with this prefix."""

        async def look() -> list[str]:
            store = EtcdCoordination(self._url)
            try:
                return list((await store.get_prefix(prefix)).entries)
            finally:
                await store.close()

        return asyncio.run(look())

    def flags(self, number: int, **more: str) -> dict[str, str]:
        """The flags of a broker."""
        return {
            "node-id": str(number),
            "kafka": self.address(number),
            "grpc": "none",
            "http": "none",
            "rack": "abc"[number % 3] if self._racks else "",
            "coordination": self._url,
            "data-dir": str(self.home(number)),
            "session-ttl-ms": str(TTL_MS),
            "roles": self._roles.get(number, "overseer,carrier"),
            **{name.replace("_", "-"): value for name, value in {**self._flags, **more}.items()},
        }

    def start(self, *numbers: int, **more: str) -> None:
        """Start brokers (default: all), with additional flags. Each is ready when this returns."""
        for number in numbers or self._ports:
            log = None if self._logs is None else self.log_path(number).open("a+b")
            child = Child(self.flags(number, **more), self._settings, self._variables, log)
            self.servers[number] = child.start()
            self._running[number] = child

    def log_path(self, number: int) -> Path:
        """Where a broker writes its log, if a folder for logs was given."""
        return (self._logs or self._home) / f"broker{number}.log"

    def kill(self, number: int) -> None:
        """Kill a broker with SIGKILL."""
        self._running[number].kill()
        self._running.pop(number).stop()

    def pause(self, number: int) -> None:
        """Suspend a broker until `resume`."""
        os.kill(self._running[number].pid, signal.SIGSTOP)

    def resume(self, number: int) -> None:
        """Let a suspended broker continue."""
        os.kill(self._running[number].pid, signal.SIGCONT)

    def stop(self, *numbers: int) -> None:
        """Stop brokers gracefully (default: all)."""
        for number in numbers or tuple(self._running):
            self._running.pop(number).stop()


@contextmanager
def running_brokers(
    count: int = 3,
    settings: dict[str, str] | None = None,
    members: int = 1,
    *,
    racks: bool = True,
    roles: Mapping[int, str] | None = None,
    variables: Mapping[str, str] | None = None,
    logs: Path | None = None,
    first: Sequence[int] = (),
    **flags: str,
) -> Iterator[Brokers]:
    """Run a cluster during the block. `first` are the brokers that start with it (default: all).

    With a folder for `logs`, each broker writes its log into a file there.
    """
    home = Path(tempfile.mkdtemp(prefix="tidemill-cluster-"))
    with running_etcd(members) as etcd:
        brokers = Brokers(
            etcd, home, count, settings, racks=racks, roles=roles, variables=variables, logs=logs, **flags
        )
        try:
            brokers.start(*first)
            yield brokers
        finally:
            for member in etcd.members:
                member.resume()
            for child in list(brokers._running.values()):
                child.kill()
                child.stop()
            shutil.rmtree(home, ignore_errors=True)
