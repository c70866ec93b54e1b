"""`make bench`: every benchmark in turn, in its short form unless --full is given."""

import subprocess
import sys
from pathlib import Path

# Parts that the benchmarks share, not benchmarks themselves.
SHARED = {"__init__", "__main__", "machine", "peers", "load", "spark_peers", "timeline_fill"}


def main() -> int:
    names = sorted(path.stem for path in Path(__file__).parent.glob("*.py") if path.stem not in SHARED)
    failed = []
    for name in names:
        print(f"\n== {name}", flush=True)
        if subprocess.run([sys.executable, "-m", f"benchmarks.{name}", *sys.argv[1:]], check=False).returncode:
            failed.append(name)
    if failed:
        print(f"failed: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
