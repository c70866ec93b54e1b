"""The lines that every benchmark prints first: the machine and the command."""

import os
import platform
import sys
from pathlib import Path


def describe() -> str:
    """Cores, memory, Python, and the load before the run: on a busy machine only ratios are meaningful."""
    model = next((line.split(":")[1].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")), "?")
    memory = next((int(line.split()[1]) for line in _lines("/proc/meminfo") if line.startswith("MemTotal")), 0)
    load = os.getloadavg()[0]
    return f"{os.cpu_count()} x {model}, {memory / 2**20:.0f} GiB, Python {platform.python_version()}, load {load:.1f}"


def head(module: str) -> None:
    """Print the machine and the command."""
    print(f"machine: {describe()}")
    print(f"command: python -m benchmarks.{module} {' '.join(sys.argv[1:])}".rstrip(), flush=True)


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []
