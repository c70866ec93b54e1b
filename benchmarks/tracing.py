"""The cost of traces on the produce path, in instructions of the processor, which other load does not change.

    python -m benchmarks.tracing [--before SOURCE] [--full]

Runs the handler of Produce with one record under `valgrind --tool=callgrind`, twice with another number of requests; the
difference is the cost of one request. `--before` also measures another source tree, such as a worktree of an older
commit (`git worktree add /tmp/before COMMIT`, then `--before /tmp/before/src`).
"""

import argparse
import asyncio
import tempfile
import time
from pathlib import Path
from typing import Any
from uuid import uuid4

from benchmarks.instructions import instructions
from benchmarks.machine import head
from tidemill.app.broker_wiring import make_broker
from tidemill.app.logs import quiet_unless_configured
from tidemill.broker.broker import BrokerEnvironment
from tidemill.broker.topic_directories import MemoryTopics
from tidemill.cluster.local import LocalCoordination
from tidemill.model.broker_settings import parse
from tidemill.records.build import NewRecord, build_batch
from tidemill.servers.kafka.api import Call, ConnectionIdentity
from tidemill.servers.kafka.api_table import standard_table
from tidemill.servers.kafka.loop_guard import LoopGuard
from tidemill.servers.kafka.produce import produce
from tidemill.streams.memory import MemoryLogStore
from tidemill.wire.kafka.produce import ProducePartition, ProduceRequest

FEW, MANY, MANY_FULL = 200, 600, 2_200
PRODUCE, VERSION = 0, 9
TRACEPARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
SPANS_MAX = 10_000
MODES = {
    "off": "traces off",
    "on": "traces on, record without traceparent",
    "traced": "traces on, record with traceparent",
}


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def tracer_of(mode: str) -> dict[str, Any]:
    """The tracer of the environment; older sources have none."""
    if mode == "off":
        return {}
    from tidemill.tracing.core.sampling import Sampler
    from tidemill.tracing.tracer import BrokerTracer

    return {"tracer": BrokerTracer(Sampler(), time.time_ns, lambda _: 1, SPANS_MAX)}


async def handle(mode: str, requests: int) -> None:
    """Produce so many requests."""
    quiet_unless_configured()
    with tempfile.TemporaryDirectory() as folder:
        coordination = await LocalCoordination.open(Path(folder))
        world = BrokerEnvironment(coordination, MemoryTopics(MemoryLogStore, now_ms), now_ms, uuid4, **tracer_of(mode))
        broker = make_broker(world, parse({}))
        await broker.start()
        await broker.topics.create("orders")
        headers = (("traceparent", TRACEPARENT.encode()),) if mode == "traced" else ()
        batch = build_batch([NewRecord(None, b"v" * 100, headers, now_ms())])
        guard, apis, identity = LoopGuard(), standard_table(), ConnectionIdentity()
        for _ in range(requests):
            call: Call[Any] = Call(broker, PRODUCE, VERSION, "bench", "", apis, identity=identity, guard=guard)
            part = ProducePartition(0, memoryview(bytearray(batch)))
            await produce(call, ProduceRequest(None, 1, 1_000, [("orders", [part])]))
        await broker.stop()
        await coordination.close()


def per_request(mode: str, many: int, source: str | None = None) -> float:
    """The instructions of one request."""

    def of(requests: int) -> int:
        return instructions("benchmarks.tracing", "--child", mode, str(requests), source=source)

    return (of(many) - of(FEW)) / (many - FEW)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--before")
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--child", nargs=2)
    given = parser.parse_args()
    if given.child:
        asyncio.run(handle(given.child[0], int(given.child[1])))
        return
    head("tracing")
    many = MANY_FULL if given.full else MANY
    rows = [("before", per_request("off", many, given.before))] if given.before else []
    rows += [(title, per_request(mode, many)) for mode, title in MODES.items()]
    first = rows[0][1]
    for title, cost in rows:
        print(f"{title:40} {cost:12,.0f} instructions per request  {cost / first:6.3f}")


if __name__ == "__main__":
    main()
