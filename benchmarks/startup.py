"""Time from exec to the ready line, idle memory, and the cost of `import tidemill`, compared with a bare Python.

python -m benchmarks.startup [--runs 5]
"""

import argparse
import compileall
import statistics
import subprocess
import sys
import time
from pathlib import Path

import tidemill
from benchmarks import machine, peers


def seconds(*command: str) -> float:
    began = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - began


def ready() -> tuple[float, float]:
    began = time.perf_counter()
    with peers.tidemill("--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0") as broker:
        took = time.perf_counter() - began
        time.sleep(1)  # modules that are loaded after the ready line count as idle memory
        return took, broker.resident_mb()


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--runs", type=int, default=5)
    options.add_argument("--full", action="store_true")
    runs = options.parse_args().runs
    machine.head("startup")
    # Compile the bytecode, as an installer does; Python may not be allowed to write it later.
    compileall.compile_dir(Path(tidemill.__file__).parent, quiet=1)
    bare = statistics.median(seconds(sys.executable, "-c", "pass") for _ in range(runs))
    imported = statistics.median(seconds(sys.executable, "-c", "import tidemill") for _ in range(runs))
    helped = statistics.median(seconds(sys.executable, "-m", "tidemill", "--help") for _ in range(runs))
    starts = [ready() for _ in range(runs)]
    ready_s = statistics.median(took for took, _ in starts)
    print(f"python -c pass        {bare * 1e3:7.0f} ms")
    print(f"import tidemill       {imported * 1e3:7.0f} ms  {imported / bare:.1f}x")
    print(f"tidemill --help       {helped * 1e3:7.0f} ms  {helped / bare:.1f}x")
    print(f"exec to ready line    {ready_s * 1e3:7.0f} ms  {ready_s / bare:.1f}x, all three servers")
    print(f"idle memory           {statistics.median(memory for _, memory in starts):7.0f} MB")


if __name__ == "__main__":
    main()
