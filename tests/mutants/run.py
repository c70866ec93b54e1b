"""Mutation tests: change one thing in a module, run the tests of its package, and list the changes that no test finds.

    python -m tests.mutants.run [--seed N] [--count 160] [--only PREFIX] [--goal 95] [--json]

The mutants are made and tested in a temporary copy of the work tree, so the tree can be edited during a run. The tests
of a package run once on the unchanged source, to record which test reaches which statement; `.mutants_cache` keeps the
result. A mutant in a function needs only the tests that reach its statement, the fastest first. They run in a fork of a
process that has imported everything, with the one function exchanged. A mutant outside of functions is imported again,
for all tests of its package. A mutant is killed when a test fails or exceeds its time limit, and when that test passes
without it. A mutant that no test reaches survives. Mutants that change nothing a caller can see are named in
`equivalent.txt`. The process of SQL queries is isolated and imports the installed package, so `query_engine` must not
be edited during a run.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path, PurePosixPath
from random import Random

from benchmarks.machine import describe
from tests.mutants.mutations import mutations
from tests.mutants.targets import is_target
from tests.mutants.tree import ROOT, Mutant, MutantTree

EQUIVALENT = Path(__file__).with_name("equivalent.txt")


@dataclass(slots=True)
class Report:
    """The result of a run."""

    seed: int
    killed: int = 0
    timed_out: int = 0
    equivalent: int = 0
    survivors: list[str] = field(default_factory=list)

    @property
    def tested(self) -> int:
        """Mutants that tests ran against."""
        return self.killed + len(self.survivors)

    @property
    def percent(self) -> float:
        """The share of killed mutants, without the equivalent ones."""
        return 100 * self.killed / self.tested if self.tested else 100.0

    def summary(self) -> str:
        """The last line of a run."""
        parts = f"{self.timed_out} of them by the time limit, {self.equivalent} equivalent left out, seed {self.seed}"
        return f"killed {self.killed} of {self.tested} ({self.percent:.1f} %); {parts}"


def all_mutants(root: Path = ROOT) -> list[Mutant]:
    """Every mutant of every module that is chosen, in the order of the paths."""
    source = root / "src"
    modules = sorted(PurePosixPath(file.relative_to(source)) for file in source.rglob("*.py"))
    return [
        Mutant(module, mutation)
        for module in modules
        if is_target(module)
        for mutation in mutations((source / module).read_text())
    ]


def equivalent_keys(text: str) -> dict[str, str]:
    """The mutants named in `equivalent.txt`, with the reasons."""
    keys: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        key, separator, reason = line.rpartition("  # ")
        if not separator or not reason.strip():
            sys.exit(f"{EQUIVALENT.name}:{number} has no reason; end the line with two spaces, # and the reason")
        keys[key.strip()] = reason.strip()
    return keys


def run(chosen: list[Mutant], equivalent: Iterable[str], seed: int, *, quiet: bool) -> Report:
    """Test the mutants one after the other."""
    report, named = Report(seed), frozenset(equivalent)
    with tempfile.TemporaryDirectory(prefix="tidemill-mutants-") as folder:
        tree = MutantTree(Path(folder))
        for number, mutant in enumerate(chosen, 1):
            if mutant.key in named:
                report.equivalent += 1
                continue
            began = time.monotonic()
            verdict = tree.kills(mutant)
            report.killed += verdict.killed
            report.timed_out += verdict.timed_out
            if not verdict.killed:
                report.survivors.append(str(mutant))
            if not quiet:
                seconds = time.monotonic() - began
                print(f"{number}/{len(chosen)} killed {report.killed} ({seconds:.0f} s)", file=sys.stderr, flush=True)
                if not verdict.killed:
                    print(mutant, flush=True)
        tree.close()
    return report


def main() -> None:
    """Sample, test, report."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants.run", description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, default=None, help="which sample; random when it is not given")
    parser.add_argument("--count", type=int, default=160, help="how many mutants")
    parser.add_argument("--only", default="", metavar="PREFIX", help="modules below src that begin so: tidemill/wire")
    parser.add_argument("--goal", type=float, default=95.0, help="percent that have to be killed")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    given = parser.parse_args()
    seed = Random().randrange(10**6) if given.seed is None else given.seed
    everything, equivalent = all_mutants(), equivalent_keys(EQUIVALENT.read_text())
    possible = [each for each in everything if str(each.module).startswith(given.only)]
    if not possible:
        sys.exit(f"no module below src begins with {given.only!r}")
    chosen = Random(seed).sample(possible, min(given.count, len(possible)))
    if not given.json:
        print(f"seed {seed}, {len(chosen)} of {len(possible)} mutants, machine: {describe()}", flush=True)
        for key in sorted(set(equivalent) - {each.key for each in everything}):
            print(f"{EQUIVALENT.name}: no such mutant any more: {key}")
    report = run(sorted(chosen, key=lambda each: str(each.module)), equivalent, seed, quiet=given.json)
    if given.json:
        print(json.dumps(asdict(report) | {"machine": describe(), "percent": report.percent}, indent=2))
    else:
        print(report.summary())
    sys.exit(report.percent < given.goal)


if __name__ == "__main__":
    main()
