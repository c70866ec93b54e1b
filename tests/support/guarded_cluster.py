"""Three brokers that require a login and one that carries nothing, with their logs, and clients of their consoles."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.cluster_processes import Brokers, running_brokers
from tests.support.guarded_console import SETTINGS, ConsoleClients, admin_variables

ANY = "127.0.0.1:0"
NUMBERS = (1, 2, 3)
LOST = 4
"""An overseer without replicas, so that it can be forgotten."""


class GuardedCluster(ConsoleClients):
    """The running brokers. Requests go to the broker that `use` has chosen last."""

    def __init__(self, brokers: Brokers) -> None:
        self.brokers = brokers
        addresses = [str(brokers.servers[number]["kafka"]) for number in NUMBERS]
        super().__init__("", ",".join(addresses), [brokers.log_path(number) for number in brokers.servers])
        self.use(1)

    def use(self, number: int) -> None:
        """Send the next requests to this broker."""
        self.http = f"http://{self.brokers.servers[number]['http']}"


@contextmanager
def guarded_cluster(folder: Path, settings: dict[str, str] | None = None) -> Iterator[GuardedCluster]:
    """A running cluster with the super user `admin`."""
    with running_brokers(
        count=LOST,
        roles={LOST: "overseer"},
        settings={**SETTINGS, **(settings or {})},
        variables=admin_variables(folder),
        logs=folder,
        http=ANY,
        grpc=ANY,
    ) as brokers:
        cluster = GuardedCluster(brokers)
        try:
            yield cluster
        finally:
            cluster.close()
