"""A real broker on free ports, in a thread of the test's process (quick) or in a process of its own (can be killed).

Everything works as in production: the same node, a data directory, the Kafka, gRPC and HTTP doors. Environment
variables and settings files of the surroundings are left out, so that a test means the same everywhere.
"""

import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from tidemill.app import logs
from tidemill.app.thread import NodeThread
from tidemill.settings import Address, load
from tidemill.testing.child import Child
from tidemill.testing.reset import reset, reset_timelines

ANY_PORT = "127.0.0.1:0"
DOORS = ("kafka", "grpc", "http")
MS_PER_SECOND = 1_000


class Runner(Protocol):
    """How a broker runs: in a thread or as a child process."""

    def start(self) -> Mapping[str, Address | None]:
        """Start it; the addresses of its doors."""

    def stop(self) -> None:
        """Stop it in order."""

    def kill(self) -> None:
        """End it as a power cut would."""

    def hold(self, *, held: bool) -> None:
        """Stop it where it is, or let it go on."""

    def advance(self, ms: int) -> None:
        """Let time pass that does not."""


class InThread:
    """A node in a thread of this process."""

    def __init__(self, flags: Mapping[str, str], broker_settings: Mapping[str, str]) -> None:
        logs.quiet_unless_configured()
        self._thread = NodeThread(load(flags, broker=broker_settings))

    def start(self) -> Mapping[str, Address | None]:
        """Start it; the addresses of its doors."""
        self._thread.start()
        node = self._thread.node
        return {"kafka": node.kafka, "grpc": node.grpc, "http": node.http}

    def stop(self) -> None:
        """Stop it in order."""
        self._thread.stop()

    def kill(self) -> None:
        """A thread cannot be killed."""
        raise RuntimeError("only a broker in a process of its own can be killed: Broker(process=True)")

    def hold(self, *, held: bool) -> None:
        """A thread cannot be stopped where it is."""
        del held
        raise RuntimeError("only a broker in a process of its own can be paused: Broker(process=True)")

    def advance(self, ms: int) -> None:
        """Let time pass that does not."""
        self._thread.call(lambda node: node.advance(ms))


class Broker:
    """A broker for a test.

        with Broker() as broker:
            producer = Producer({"bootstrap.servers": broker.bootstrap_servers})

    `settings` are broker settings in Kafka's spelling (`{"num.partitions": 3}`), `flags` those of `tidemill serve`
    (`{"timelines": "memory:"}`). A `data_dir` that is given stays; otherwise there is a new one, which goes with the
    broker. In a thread of this process time can pass at once (`advance`); as a `process` of its own it can be killed
    and paused.
    """

    def __init__(
        self,
        *,
        process: bool = False,
        data_dir: Path | str | None = None,
        settings: Mapping[str, object] | None = None,
        flags: Mapping[str, object] | None = None,
    ) -> None:
        self._process = process
        self._own_folder = data_dir is None
        self.data_dir = Path(tempfile.mkdtemp(prefix="tidemill-")) if data_dir is None else Path(data_dir)
        self._settings = _texts(settings or {})
        self._flags = {**dict.fromkeys(DOORS, ANY_PORT), "data-dir": str(self.data_dir), **_texts(flags or {})}
        self._addresses: Mapping[str, Address | None] = {}
        self._runner: Runner | None = None
        self._ahead = False

    def start(self) -> Self:
        """Start; ready for clients when this returns. A start that fails leaves nothing."""
        if self._runner is not None:
            raise RuntimeError("the broker runs already")
        try:
            self._runner = (Child if self._process else InThread)(self._flags, self._settings)
            self._addresses = self._runner.start()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Stop in order; a data directory that is the broker's own goes."""
        runner, self._runner = self._runner, None
        try:
            if runner is not None:
                runner.stop()
        finally:
            if self._own_folder:
                shutil.rmtree(self.data_dir, ignore_errors=True)

    def kill(self) -> None:
        """End the process at once, as kill -9 does; `restart` brings it back."""
        if self._runner is not None:
            self._runner.kill()

    def pause(self) -> None:
        """Answer nobody: connections stay, new ones come about, and nothing is heard, as on a network that is cut."""
        self._running().hold(held=True)

    def resume(self) -> None:
        """Go on after `pause`; what was asked meanwhile is answered."""
        self._running().hold(held=False)

    def restart(self) -> None:
        """Stop (unless it was killed) and start again: same addresses, same data, at the true time."""
        self._ahead = False
        runner, self._runner = self._runner, None
        if runner is not None:
            runner.stop()
        self._flags.update({name: str(at) for name, at in self._addresses.items() if at is not None})
        self.start()

    def advance(self, seconds: float) -> None:
        """Let time pass for timelines and records for later: what falls due in it is delivered now.

        Leases end in it, too. The clocks of the test, of clients and of consumer groups stay as they are.
        """
        if seconds < 0:
            raise ValueError("time does not go back")
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
        """What a Kafka client connects to."""
        return str(self._address("kafka"))

    @property
    def grpc(self) -> str:
        """What a timeline client connects to."""
        return str(self._address("grpc"))

    @property
    def http(self) -> str:
        """Where the console, the metrics and the health pages are: http://host:port."""
        return f"http://{self._address('http')}"

    def _running(self) -> Runner:
        if self._runner is None:
            raise RuntimeError("the broker does not run")
        return self._runner

    def _address(self, door: str) -> Address:
        address = self._addresses.get(door)
        if address is None:
            raise RuntimeError(f"the {door} door is not open")
        return address

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()


def _texts(given: Mapping[str, object]) -> dict[str, str]:
    """Settings as a file or a command line has them: whoever writes Python writes numbers and booleans."""
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in given.items()}
