"""Runs the targets of `targets.py` under atheris, which looks for inputs that reach new code.

python -m tests.fuzz.run [--seconds 60] [TARGET ...]      each target in turn; a failing input is kept in `found`
python -m tests.fuzz.run TARGET FILE                      one input again
"""

import argparse
import os
import re
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
CORPUS, FOUND = HERE / "corpus", HERE / "found"
INPUT_BYTES_MAX = 4_096
MEMORY_BYTES_MAX = 2 << 30
UNIT_SECONDS_MAX = 60
"""One input may take this long. It is far more than any input needs, because the machine may be busy."""
NICENESS = 10
"""The targets use a whole core, so the tests that run at the same time go first."""
INSTRUMENTED = (
    "tidemill.wire",
    "tidemill.records",
    "tidemill.model",
    "tidemill.security",
    "tidemill.servers.http.core",
    "tidemill.sql.core",
)


def fuzz(name: str, words: list[str]) -> None:
    """Run one target in this process; ends the process."""
    import atheris

    os.nice(NICENESS)
    # libFuzzer's own limit, -rss_limit_mb, counts the peak of the process that has started this one: a pytest worker's.
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
    with atheris.instrument_imports(include=list(INSTRUMENTED)):
        from tests.fuzz.targets import targets
    atheris.Setup([sys.argv[0], *words], targets()[name])
    atheris.Fuzz()


def command(name: str, *words: str) -> list[str]:
    """The command that runs one target in a process of its own."""
    root = str(HERE.parent.parent)
    start = (
        f"import sys; sys.path.insert(0, {root!r}); from tests.fuzz.run import fuzz; fuzz({name!r}, {list(words)!r})"
    )
    return [sys.executable, "-c", start]


def run(name: str, seconds: int, seed: int, found: Path = FOUND) -> "subprocess.CompletedProcess[str]":
    """Look for failing inputs of one target for a time; new inputs are not kept."""
    found.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as fresh:
        words = [
            fresh,
            *([str(CORPUS / name)] if (CORPUS / name).is_dir() else []),
            f"-max_total_time={seconds}",
            f"-max_len={INPUT_BYTES_MAX}",
            f"-seed={seed}",
            f"-artifact_prefix={found}/{name}-",
            f"-timeout={UNIT_SECONDS_MAX}",
            "-rss_limit_mb=0",
        ]
        return subprocess.run(
            command(name, *words),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )


def executions(ran: "subprocess.CompletedProcess[str]") -> int:
    """How many inputs a run has tried."""
    found = re.search(r"^Done (\d+) runs", ran.stderr, re.MULTILINE)
    return int(found[1]) if found else 0


def main() -> int:
    """Run the command line."""
    from tests.fuzz.targets import targets

    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seconds", type=int, default=60)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("words", nargs="*", metavar="TARGET")
    given = options.parse_args()
    known = targets()
    if len(given.words) == 2 and Path(given.words[1]).is_file():
        known[given.words[0]](Path(given.words[1]).read_bytes())
        return 0
    failed = 0
    for name in given.words or known:
        ran = run(name, given.seconds, given.seed)
        last = [line for line in ran.stderr.splitlines() if "cov:" in line][-1:]
        print(f"{name}: {'failed' if ran.returncode else 'fine'} {last[0].strip() if last else ''}", flush=True)
        if ran.returncode:
            failed = 1
            print(ran.stderr[-3_000:])
    return failed


if __name__ == "__main__":
    sys.exit(main())
