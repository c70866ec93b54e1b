"""The cost of growth: a produce at 1, 100 and 1,000 partitions, and opening a large log after a clean stop and a kill.

python -m benchmarks.growth [--full] [--gb 1]
"""

import argparse
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import machine, peers
from benchmarks.throughput import Case, create, produce

RECORDS = 20_000
VALUE = 1024


def cost_by_partitions(counts: list[int]) -> None:
    base = 0.0
    for partitions in counts:
        with peers.tidemill() as broker:
            create(broker.address, "grow", partitions)
            before = broker.cpu_s()
            produce(broker.address, "grow", Case(VALUE, 16_384, "1", partitions), RECORDS)
            cost = (broker.cpu_s() - before) / RECORDS * 1e6
        base = base or cost
        print(
            f"{partitions:>6} partitions: {cost:6.2f} us of broker per record, {cost / base:.2f}x of one partition",
            flush=True,
        )


def opening(gb: float) -> None:
    with tempfile.TemporaryDirectory(prefix="tidemill-growth-") as folder:
        child, address, first = serve(folder)
        create(address, "big", 1)
        produce(address, "big", Case(VALUE, 1_000_000, "1", 1), int(gb * 1e9) // VALUE)
        stop(child, signal.SIGTERM)
        child, _, clean = serve(folder)
        stop(child, signal.SIGKILL)
        child, _, killed = serve(folder)
        stop(child, signal.SIGTERM)
        print(
            f"start empty {first:.2f} s; with {gb:g} GB after a clean stop {clean:.2f} s ({clean / first:.2f}x), after kill -9 {killed:.2f} s ({killed / first:.2f}x)"
        )


def serve(folder: str) -> tuple["subprocess.Popen[str]", str, float]:
    began = time.perf_counter()
    command = [
        sys.executable,
        "-m",
        "tidemill",
        "serve",
        "--data-dir",
        str(Path(folder, "data")),
        "--kafka",
        "127.0.0.1:0",
    ]
    child = subprocess.Popen(
        [*command, "--http", "none", "--grpc", "none", "--log-level", "error"], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    ready = child.stdout.readline()
    address = next(part.removeprefix("kafka=") for part in ready.split() if part.startswith("kafka="))
    return child, address, time.perf_counter() - began


def stop(child: "subprocess.Popen[str]", by: signal.Signals) -> None:
    child.send_signal(by)
    child.wait(60)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--gb", type=float, default=1)
    options.add_argument("--full", action="store_true", help="10 GB")
    chosen = options.parse_args()
    machine.head("growth")
    cost_by_partitions([1, 100, 1_000])
    opening(10 if chosen.full else chosen.gb)


if __name__ == "__main__":
    main()
