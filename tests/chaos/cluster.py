"""Three brokers and three etcd members, on hosts of their own where that is allowed."""

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic
from tests.chaos.disks import Disks, disks
from tests.chaos.hosts import Hosts, hosts
from tests.support.etcd import Etcd, running_etcd
from tests.support.postgres import free_port
from tests.support.waiting import eventually

from tidemill.testing.child import Child

BROKERS = 3
TTL_MS = 3000
PARTITIONS = 3
TOPIC = "orders"
SETTINGS = {
    "allow.anonymous": "true",  # the hosts have addresses of their own
    "group.initial.rebalance.delay.ms": "0",
    "replica.lag.time.max.ms": "2000",
    "tidemill.tend.interval.ms": "1000",
    "log.retention.check.interval.ms": "1000",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
}


class _Hosted(Child):
    """A broker on one of the hosts."""

    def __init__(self, command: list[str], flags: dict[str, str], log: Path) -> None:
        super().__init__(flags, SETTINGS, log=log.open("ab+"))
        self._command = [*command, *self._command]


class Cluster:
    """The brokers, by number."""

    def __init__(self, etcd: Etcd, where: Hosts, disks: Disks, logs: Path) -> None:
        self.etcd = etcd
        self.logs = logs
        self.hosts = where
        self.disks = disks
        self._url = etcd.new_folder()
        self._ports = {number: free_port() for number in where.brokers}
        self.timelines = {number: f"{address}:{free_port()}" for number, address in where.brokers.items()}
        """The gRPC address of each broker."""
        self._running: dict[int, Child] = {}
        self._admin: AdminClient | None = None

    @property
    def bootstrap(self) -> str:
        """The bootstrap address for clients."""
        return ",".join(f"{self.hosts.brokers[number]}:{port}" for number, port in self._ports.items())

    def start(self, *numbers: int) -> None:
        """Start brokers (default: all)."""
        for number in numbers or self._ports:
            flags = {
                "node-id": str(number),
                "kafka": f"{self.hosts.brokers[number]}:{self._ports[number]}",
                "grpc": self.timelines[number],
                "http": "none",
                "timelines": "replicated:",
                "coordination": self._url,
                "data-dir": str(self.disks.of[number].path / "data"),
                "session-ttl-ms": str(TTL_MS),
                "cluster-secret": "of the chaos",
            }
            child = _Hosted(self.hosts.command(number), flags, self.logs / f"broker{number}.log")
            child.start()
            self._running[number] = child

    def create_topics(self, *more: str) -> None:
        """Create the main topic, and others like it."""
        self._admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        config = {"min.insync.replicas": "2"}
        topics = [NewTopic(name, PARTITIONS, BROKERS, config=config) for name in (TOPIC, *more)]
        for created in self._admin.create_topics(topics).values():
            created.result(30)

    def leaders(self) -> dict[int, int]:
        """The leader of each partition, from the metadata for clients."""
        assert self._admin is not None
        parts = self._admin.list_topics(TOPIC, timeout=30).topics[TOPIC].partitions
        return {index: part.leader for index, part in parts.items()}

    def settle(self, within_s: float = 60.0) -> None:
        """Wait until every partition has a leader and all its replicas in sync."""
        eventually(self._in_sync, "not in sync", within_s=within_s, interval_s=0.2)

    def _in_sync(self) -> bool:
        assert self._admin is not None
        parts = self._admin.list_topics(TOPIC, timeout=30).topics[TOPIC].partitions.values()
        return all(part.leader > 0 and len(part.isrs) == BROKERS for part in parts)

    def kill(self, number: int) -> None:
        """Kill a broker with SIGKILL."""
        child = self._running.pop(number)
        child.kill()
        child.stop()

    def stop(self, number: int) -> None:
        """Stop a broker gracefully."""
        self._running.pop(number).stop()

    def pause(self, number: int) -> None:
        """Suspend a broker."""
        os.kill(self._running[number].pid, signal.SIGSTOP)

    def resume(self, number: int) -> None:
        """Let a suspended broker continue."""
        os.kill(self._running[number].pid, signal.SIGCONT)

    def end(self) -> None:
        """Stop everything that runs."""
        self.hosts.heal()
        for child in self._running.values():
            child.kill()
            child.stop()


@contextmanager
def running_cluster(logs: Path | None = None) -> Iterator[Cluster]:
    """Run a cluster during the block. The brokers' logs are kept in `logs`."""
    home = Path(tempfile.mkdtemp(prefix="tidemill-chaos-"))
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, home, ignore_errors=True)
        where = stack.enter_context(hosts(BROKERS, 3))
        mine = stack.enter_context(disks(home, where.brokers))
        etcd = stack.enter_context(running_etcd(3, where.members))
        cluster = Cluster(etcd, where, mine, logs or home)
        stack.callback(cluster.end)
        cluster.start()
        yield cluster
