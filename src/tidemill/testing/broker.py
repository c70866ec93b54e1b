"""A real broker on free ports, in a thread of the test's process (quick) or in its own process (can be killed).

The broker is the same node as in production, with a data directory and with Kafka, gRPC and HTTP servers. It ignores
`TIDEMILL_*` variables and settings files, so that a test gives the same result everywhere.
"""

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from tidemill.app import logs
from tidemill.app.thread import NodeThread
from tidemill.model.addresses import Address
from tidemill.settings import ADMIN_PASSWORD_FILE_VARIABLE, load
from tidemill.testing.child import HTTPS, SERVERS, Child, addresses_of
from tidemill.testing.reset import reset, reset_timelines

ANY_PORT = "127.0.0.1:0"
MS_PER_SECOND = 1_000


class Runner(Protocol):
    """Runs a broker in a thread or as a child process."""

    def start(self) -> Mapping[str, Address | None]:
        """Start the broker and return the addresses of its servers."""

    def stop(self) -> None:
        """Stop the broker cleanly."""

    def kill(self) -> None:
        """End the broker as a power cut would."""

    def hold(self, *, held: bool) -> None:
        """Suspend the process, or resume it."""

    def advance(self, ms: int) -> None:
        """Advance the clock of the broker."""


class InThread:
    """Runs a node in a thread of this process."""

    def __init__(
        self, flags: Mapping[str, str], broker_settings: Mapping[str, str], variables: Mapping[str, str]
    ) -> None:
        logs.quiet_unless_configured()
        self._thread = NodeThread(load(flags, variables, broker=broker_settings))

    def start(self) -> Mapping[str, Address | None]:
        """Start the broker and return the addresses of its servers."""
        self._thread.start()
        node = self._thread.node
        return addresses_of(node.ready_line)

    def stop(self) -> None:
        """Stop the broker cleanly."""
        self._thread.stop()

    def kill(self) -> None:
        """Not supported: a thread cannot be killed."""
        raise RuntimeError("a broker in a thread cannot be killed; start it with Broker(process=True)")

    def hold(self, *, held: bool) -> None:
        """Not supported: a thread cannot be suspended."""
        del held
        raise RuntimeError("a broker in a thread cannot be paused; start it with Broker(process=True)")

    def advance(self, ms: int) -> None:
        """Advance the clock of the broker."""
        self._thread.call(lambda node: node.advance(ms))


class Broker:
    """A broker for a test.

        with Broker() as broker:
            producer = Producer({"bootstrap.servers": broker.bootstrap_servers})

    `settings` are broker settings in Kafka's spelling (`{"num.partitions": 3}`), `flags` those of `tidemill serve`
    (`{"timelines": "memory:"}`). A given `data_dir` is kept. Without one the broker creates a directory and `stop`
    deletes it. `admin_password` creates the user `admin`, a super user. In a thread of this process the clock can be
    advanced (`advance`). With `process=True` the broker can be killed and paused.
    """

    def __init__(
        self,
        *,
        process: bool = False,
        data_dir: Path | str | None = None,
        settings: Mapping[str, object] | None = None,
        flags: Mapping[str, object] | None = None,
        admin_password: str | None = None,
    ) -> None:
        self._process = process
        self._own_folder = data_dir is None
        self.data_dir = Path(tempfile.mkdtemp(prefix="tidemill-")) if data_dir is None else Path(data_dir)
        self._settings = _texts(settings or {})
        self._flags = {**dict.fromkeys(SERVERS, ANY_PORT), "data-dir": str(self.data_dir), **_texts(flags or {})}
        self._admin_password = admin_password
        self._addresses: Mapping[str, Address | None] = {}
        self._runner: Runner | None = None
        self._ahead = False

    def start(self) -> Self:
        """Start the broker. It is ready for clients when this returns. A failed start leaves nothing behind."""
        if self._runner is not None:
            raise RuntimeError("the broker already runs; call stop() first")
        try:
            with _password_file(self._admin_password) as variables:
                self._runner = (Child if self._process else InThread)(self._flags, self._settings, variables)
                self._addresses = self._runner.start()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Stop the broker cleanly, and delete its data directory unless one was given."""
        runner, self._runner = self._runner, None
        try:
            if runner is not None:
                runner.stop()
        finally:
            if self._own_folder:
                shutil.rmtree(self.data_dir, ignore_errors=True)

    def kill(self) -> None:
        """End the process at once, as kill -9 does. `restart` starts it again."""
        if self._runner is not None:
            self._runner.kill()

    def pause(self) -> None:
        """Suspend the process: connections stay open and new ones are accepted, but no request is answered."""
        self._running().hold(held=True)

    def resume(self) -> None:
        """Resume after `pause`. The broker answers the requests that arrived meanwhile."""
        self._running().hold(held=False)

    def restart(self) -> None:
        """Stop (unless it was killed) and start again with the same addresses and data, at the real time."""
        self._ahead = False
        runner, self._runner = self._runner, None
        if runner is not None:
            runner.stop()
        self._keep_addresses()
        self.start()

    def _keep_addresses(self) -> None:
        known = {name: str(at) for name, at in self._addresses.items() if at is not None}
        self._flags.update({name: at for name, at in known.items() if name in SERVERS})
        listeners = [f"{name}://{at}" for name, at in known.items() if name not in {*SERVERS, HTTPS}]
        if listeners:
            self._settings["listeners"] = ",".join(listeners)

    def advance(self, seconds: float) -> None:
        """Advance the clock of timelines and delayed records: what becomes due is delivered now.

        Leases expire, too. The clocks of the test, of clients and of consumer groups do not change.
        """
        if seconds < 0:
            raise ValueError(f"cannot advance by {seconds} s: the clock only moves forward")
        self._running().advance(round(seconds * MS_PER_SECOND))
        self._ahead = True

    def reset(self) -> None:
        """Delete every topic, every group without members and every timeline, as if the broker were new."""
        if self._ahead:
            self.restart()
        if self._addresses.get("kafka") is not None:
            reset(self.bootstrap_servers)
        if self._addresses.get("grpc") is not None:
            reset_timelines(self.grpc)

    @property
    def bootstrap_servers(self) -> str:
        """The address for Kafka clients."""
        return str(self._address("kafka"))

    def listener(self, name: str) -> str:
        """The address of one of several Kafka listeners, by its name in the setting `listeners`."""
        return str(self._address(name))

    @property
    def grpc(self) -> str:
        """The address for timeline clients."""
        return str(self._address("grpc"))

    @property
    def http(self) -> str:
        """The URL of the console, the metrics and the health pages: http://host:port, or https:// with TLS."""
        scheme = HTTPS if HTTPS in self._addresses else "http"
        return f"{scheme}://{self._address('http')}"

    def _running(self) -> Runner:
        if self._runner is None:
            raise RuntimeError("the broker is not running; call start() first")
        return self._runner

    def _address(self, server: str) -> Address:
        address = self._addresses.get(server)
        if address is None:
            raise RuntimeError(f"the {server} server is not open; start the broker with its address in `flags`")
        return address

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()


@contextmanager
def _password_file(password: str | None) -> Iterator[dict[str, str]]:
    """The variable that names a file with the password, which only this user can read; empty without a password."""
    if password is None:
        yield {}
        return
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", prefix="tidemill-") as file:
        file.write(password)
        file.flush()
        yield {ADMIN_PASSWORD_FILE_VARIABLE: file.name}


def _texts(given: Mapping[str, object]) -> dict[str, str]:
    """Python values as the text of a settings file or a command line."""
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in given.items()}
