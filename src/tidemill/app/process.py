"""Runs a node as a process: the event loop, the signal handlers and the ready line.

SIGTERM and SIGINT stop the node cleanly. A second signal ends the process at once. That loses no acknowledged record,
and only makes the next start slower.
"""

import asyncio
import contextlib
import gc
import os
import resource
import signal
import sys
from collections.abc import Sequence

import structlog

from tidemill.allocator import keep_memory
from tidemill.app import logs
from tidemill.app.node import Node
from tidemill.model.addresses import Address
from tidemill.model.listeners import inter_broker_listener
from tidemill.settings import ROWS, Settings

FORCED_EXIT_CODE = 1
# A thread that writes to a store keeps the interpreter lock for about this long while the event loop waits. Python's
# default of 5 ms would delay timed messages by as much.
SWITCH_S = 0.001
# Messages and requests form no reference cycles. With Python's default of 700 the collector takes 5% of the time.
COLLECT_AFTER = (5_000, 20, 20)
DEFAULT_KAFKA = next(row.default for row in ROWS if row.name == "kafka")

log = structlog.get_logger("tidemill.app")


def run(settings: Settings, visible_secrets: Sequence[str] = ()) -> None:
    """Run a node until a signal stops it. `visible_secrets` are the flags whose secrets the process list shows."""
    logs.configure(settings.log_level, settings.log_format)
    logs.forward_libraries()
    if visible_secrets:
        log.warning(
            "secret_on_command_line",
            flags=list(visible_secrets),
            next_step="other users of the machine can see it: use tidemill.toml, or a variable such as "
            "TIDEMILL_COORDINATION_FILE that names a file",
        )
    _allow_many_files()
    keep_memory()
    sys.setswitchinterval(SWITCH_S)
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(_serve(settings))


def new_event_loop() -> asyncio.AbstractEventLoop:
    """A uvloop event loop where uvloop is installed, else asyncio's own."""
    try:
        import uvloop  # noqa: PLC0415 -- not on every system
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


async def _serve(settings: Settings) -> None:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _on_signal, number, stopping)
    node = Node(settings)
    await node.start()
    sys.stdout.write(node.ready_line + "\n")
    sys.stdout.flush()
    _freeze_memory()
    if sys.stderr.isatty():
        sys.stderr.write(first_commands(node.kafka, node.http_url, needs_client_file=_is_secured(settings)))
    await stopping.wait()
    log.info("stopping")
    await node.stop()
    log.info("stopped")


def _is_secured(settings: Settings) -> bool:
    """Whether clients of the listener that the ready line names need TLS or a login."""
    listener = inter_broker_listener(settings.broker.security, settings.listeners)
    return listener is not None and (listener.uses_tls or listener.requires_login)


def first_commands(kafka: Address | None, console: str | None, *, needs_client_file: bool = False) -> str:
    """The first commands to try, with the addresses they need, for a person at a terminal."""
    lines = [f"  console   {console}/"] if console else []
    if kafka:
        where = "" if str(kafka) == DEFAULT_KAFKA else f" --bootstrap {kafka}"
        if needs_client_file:
            lines.append("  log in    with --client FILE: see docs/guides/security.md")
            where += " --client FILE"
        lines += [
            f"  try       tidemill topic create orders --partitions 3{where}",
            f"            tidemill produce orders --key user-123 --message hello{where}",
            f"            tidemill consume orders --from-beginning{where}",
        ]
    return "\n".join(["", *lines, "  stop      Ctrl-C", "", ""])


def _on_signal(number: signal.Signals, stopping: asyncio.Event) -> None:
    if stopping.is_set():
        log.warning("stop_forced", signal=number.name)
        os._exit(FORCED_EXIT_CODE)
    stopping.set()


def _freeze_memory() -> None:
    """Exclude loaded modules from garbage collection, because they stay loaded, and make collections rare."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECT_AFTER)
    gc.enable()


def _allow_many_files() -> None:
    """Raise the limit of open files to the hard limit: each partition and each connection is an open file."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
