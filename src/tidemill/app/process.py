"""A node as a process: the entry point's event loop, signals, and the ready line.

SIGTERM and SIGINT stop the node in order; the second one ends the process at once, which costs nothing that was
acknowledged, only time at the next start.
"""

import asyncio
import contextlib
import gc
import os
import resource
import signal
import sys

import structlog

from tidemill.allocator import keep_memory
from tidemill.app import logs
from tidemill.app.node import Node
from tidemill.settings import ROWS, Address, Settings

FORCED_EXIT_CODE = 1
# The event loop never waits long for a thread that writes to a store: with Python's own 5 ms, every such wait would
# make timed messages late by as much.
SWITCH_S = 0.001
# Messages and requests come and go without cycles: with Python's own 700 the collector takes a twentieth of the time.
COLLECT_AFTER = (5_000, 20, 20)
DEFAULT_KAFKA = next(row.default for row in ROWS if row.name == "kafka")

log = structlog.get_logger("tidemill.app")


def run(settings: Settings) -> None:
    """Run a node until a signal ends it."""
    logs.configure(settings.log_level, settings.log_format)
    logs.forward_libraries()
    _allow_many_files()
    keep_memory()
    sys.setswitchinterval(SWITCH_S)
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(_serve(settings))


def new_event_loop() -> asyncio.AbstractEventLoop:
    """uvloop where there is one."""
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
    _settle_memory()
    if sys.stderr.isatty():
        sys.stderr.write(what_to_try(node.kafka, node.http))
    await stopping.wait()
    log.info("stopping")
    await node.stop()
    log.info("stopped")


def what_to_try(kafka: Address | None, http: Address | None) -> str:
    """For a person at a terminal: the next commands to type, with the addresses they need."""
    lines = [f"  console   http://{http}/"] if http else []
    if kafka:
        where = "" if str(kafka) == DEFAULT_KAFKA else f" --bootstrap {kafka}"
        lines += [
            f"  try       tidemill topic create orders --partitions 3{where}",
            f"            tidemill produce orders --key user-123 --message hello{where}",
            f"            tidemill consume orders --from-beginning{where}",
        ]
    return "\n".join(["", *lines, "  stop      Ctrl-C", "", ""])


def _on_signal(number: signal.Signals, stopping: asyncio.Event) -> None:
    if stopping.is_set():
        log.warning("stopped at once by a second signal", signal=number.name)
        os._exit(FORCED_EXIT_CODE)
    stopping.set()


def _settle_memory() -> None:
    """What was loaded stays for good: the collector need not look at it again, and need not look often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECT_AFTER)
    gc.enable()


def _allow_many_files() -> None:
    """Each partition and each connection is an open file; take what the system allows."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
