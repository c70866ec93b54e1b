"""Brokers in processes with users, ACLs and logs, and clients of their console."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from confluent_kafka.admin import AdminClient
from tests.support.browser import FormBrowser

from tidemill.testing.child import Child

WAIT_S = 30.0
ADMIN, PASSWORD = "admin", "admin-password"
SETTINGS = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
    "connection.failed.authentication.delay.ms": "0",
    "auto.create.topics.enable": "false",
}


class ConsoleClients:
    """Clients of brokers that require a login. All users have the same password."""

    def __init__(self, http: str, bootstrap: str, logs: Sequence[Path]) -> None:
        self.http = http
        self._logs = logs
        self.kafka = {
            "bootstrap.servers": bootstrap,
            "security.protocol": "sasl_plaintext",
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.username": ADMIN,
            "sasl.password": PASSWORD,
        }
        self.admin = AdminClient(self.kafka)
        self._client = httpx.Client(timeout=WAIT_S)

    def ask(self, name: str, method: str, path: str, body: Any = None, **options: Any) -> httpx.Response:
        """Send one request with the login of a user; without a name, with none."""
        if body is not None:
            options["json"] = body
        login = (name, PASSWORD) if name else None
        return self._client.request(method, f"{self.http}{path}", auth=login, **options)

    def good(self, name: str, method: str, path: str, body: Any = None) -> Any:
        """The document of a request that must be allowed."""
        answer = self.ask(name, method, path, body)
        assert answer.status_code in {200, 204}, answer.text
        return answer.json() if answer.content else None

    def add_users(self, names: Iterable[str]) -> None:
        """Add users that may do nothing yet."""
        for name in names:
            self.good(ADMIN, "POST", "/api/v1/users", {"user": name, "password": PASSWORD, "iterations": 4096})

    def grant(self, *principals: str, **description: Any) -> None:
        """Create ACLs."""
        self.good(ADMIN, "POST", "/api/v1/acls", {"principals": principals, **description})

    def browser(self) -> FormBrowser:
        """A browser without scripts."""
        return FormBrowser(self.http)

    def audit(self, event: str = "changed") -> list[dict[str, Any]]:
        """The events of the audit log."""
        lines = self.log_text().splitlines()
        found = (json.loads(line) for line in lines if '"tidemill.audit"' in line)
        return [each for each in found if each["event"] == event]

    def log_text(self) -> str:
        """Everything that the brokers have logged."""
        return "".join(each.read_text() for each in self._logs)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()


class GuardedConsole(ConsoleClients):
    """A running broker and its clients."""

    def __init__(
        self, folder: Path, flags: Mapping[str, str], settings: Mapping[str, str], *, is_readonly: bool = False
    ) -> None:
        log_path = folder / "log"
        self._log = log_path.open("wb")
        started = {"data-dir": str(folder / "data"), "grpc": "none", "http": "127.0.0.1:0", "timelines": "sqlite:"}
        variables = {
            **admin_variables(folder),
            "TIDEMILL_CONSOLE_READONLY": str(is_readonly).lower(),
        }
        self._child = Child({**started, **flags}, {**SETTINGS, **settings}, variables, self._log)
        servers = self._child.start()
        super().__init__(f"http://{servers['http']}", str(servers["kafka"]), [log_path])

    def stop(self) -> None:
        """Stop the broker."""
        self.close()
        self._child.stop()
        self._log.close()


def admin_variables(folder: Path) -> dict[str, str]:
    """The environment of a broker that creates the super user `admin`."""
    (folder / "password").write_text(PASSWORD)
    return {"TIDEMILL_ADMIN_PASSWORD_FILE": str(folder / "password")}


@contextmanager
def guarded_console(
    folder: Path,
    flags: Mapping[str, str] | None = None,
    settings: Mapping[str, str] | None = None,
    *,
    is_readonly: bool = False,
) -> Iterator[GuardedConsole]:
    """A running broker that authenticates, with the super user `admin`."""
    running = GuardedConsole(folder, flags or {}, settings or {}, is_readonly=is_readonly)
    try:
        yield running
    finally:
        running.stop()
