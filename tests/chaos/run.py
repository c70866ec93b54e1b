"""Chaos test: injects faults while clients of two families produce and consume, then checks the history.

    python -m tests.chaos.run [MINUTES] [SEED]

It prints the numbers of acknowledged, lost and duplicated records, the faults by kind, the failover times and the
longest stall. A run without faults, or with too few acknowledgements, also fails.
"""

import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from statistics import median

from tests.chaos.cluster import PARTITIONS, TOPIC, Cluster, running_cluster
from tests.chaos.copier import Copiers
from tests.chaos.history import stalls
from tests.chaos.nemesis import Nemesis
from tests.chaos.timers import TimerClients
from tests.chaos.workload import Workload

RATE = 60.0
"""Records per second and producer. More would starve a broker, which looks like a fault."""
REST_S = 2.0
ACKNOWLEDGED_PER_S_MIN = 10.0
TIMERS_PER_S_MIN = 1.0


@dataclass
class Report:
    """The results of a run."""

    seconds: float = 0.0
    acknowledged: int = 0
    copied: int = 0
    transactions: int = 0
    timers: int = 0
    """Messages of a timeline that were acknowledged."""
    timer_calls: Counter[str] = field(default_factory=Counter)
    """Other calls to the timeline that were acknowledged, by kind."""
    problems: dict[str, list[str]] = field(default_factory=dict)
    faults: Counter[str] = field(default_factory=Counter)
    failovers: list[float] = field(default_factory=list)
    longest_stall: float = 0.0

    def lines(self) -> list[str]:
        """The report as text."""
        lost, twice = (len(self.problems.get(kind, ())) for kind in ("lost", "duplicated"))
        faults = ", ".join(f"{kind} {count}" for kind, count in sorted(self.faults.items()))
        reported = [
            f"acknowledged {self.acknowledged}, lost {lost}, duplicated {twice} in {self.seconds:.0f} s",
            f"copied {self.copied} in {self.transactions} transactions",
            f"timers {self.timers}; {', '.join(f'{kind} {count}' for kind, count in sorted(self.timer_calls.items()))}",
            f"{sum(self.faults.values())} faults: {faults}",
            f"longest stall of a partition {self.longest_stall:.1f} s",
        ]
        if self.failovers:
            reported.insert(3, f"failover p50 {median(self.failovers):.1f} s, max {max(self.failovers):.1f} s")
        return reported + [f"WRONG {kind}: {len(rows)}, first {rows[:3]}" for kind, rows in self.problems.items()]


def run(seed: int, *, minutes: float = 0.0, faults: Sequence[str] = (), logs: Path | None = None) -> Report:
    """Inject these faults in this order, or random ones for this time. The history is checked at the end."""
    random = Random(seed)
    report = Report()
    with running_cluster(logs) as cluster, ExitStack() as stack:
        nemesis = Nemesis(cluster, random)
        workload = Workload(cluster.bootstrap, TOPIC, PARTITIONS, RATE)
        copiers = Copiers(cluster.bootstrap, TOPIC, PARTITIONS)
        timers = TimerClients(list(cluster.timelines.values()), seed)
        cluster.create_topics(*copiers.targets.values())
        cluster.settle()
        workload.start()
        copiers.start()
        timers.start()
        stack.callback(copiers.stop)
        began = time.monotonic()
        time.sleep(3)
        planned = [kind for kind in faults if kind in nemesis.kinds]
        while planned or time.monotonic() - began < minutes * 60:
            kind = planned.pop(0) if planned else random.choice(sorted(nemesis.kinds))
            _inject(nemesis, kind, cluster, workload, report)
            time.sleep(REST_S)
        ended = time.monotonic()
        cluster.settle()
        workload.stop_sending()
        stuck = workload.stop_consuming()
        timer_problems = timers.finish()
        copiers.finish()
        copiers.stop()
        workload.read_everything(copiers.targets)
        assert not workload.failures, workload.failures
        report.seconds = ended - began
        report.acknowledged = len(workload.history.acknowledged)
        report.copied = sum(map(len, workload.history.copies.values()))
        report.transactions = copiers.transactions
        report.timers = len(timers.acknowledged)
        report.timer_calls = timers.counts
        report.problems = workload.history.problems() | timer_problems
        if stuck:
            report.problems["consumers do not end"] = stuck
        report.longest_stall = max(stalls(workload.acknowledged(), began + 3, ended).values(), default=0.0)
    return report


def _inject(nemesis: Nemesis, kind: str, cluster: Cluster, workload: Workload, report: Report) -> None:
    print(f"{kind} ...", end=" ", flush=True)
    at = time.monotonic()
    nemesis.kinds[kind]()
    cluster.settle()
    print(f"{time.monotonic() - at:.1f} s", flush=True)
    report.faults[kind] += 1
    if kind == "leader killed":
        report.failovers.append(max(stalls(workload.acknowledged(), at, time.monotonic()).values(), default=0.0))


def check(report: Report) -> None:
    """Check that nothing is wrong, and that faults and acknowledgements happened."""
    assert not report.problems, report.problems
    assert sum(report.faults.values()) > 0, "no fault was injected"
    assert report.timers > TIMERS_PER_S_MIN * report.seconds, f"only {report.timers} timers acknowledged"
    assert report.acknowledged > ACKNOWLEDGED_PER_S_MIN * report.seconds, f"only {report.acknowledged} acknowledged"


def main(minutes: float = 15.0, seed: int | None = None) -> None:
    """Run the soak test. The brokers' logs are kept if a check fails."""
    seed = time.time_ns() % 100_000 if seed is None else seed
    logs = Path(tempfile.mkdtemp(prefix="tidemill-chaos-logs-"))
    print(f"seed {seed}, {minutes:g} minutes, what the brokers say is in {logs}", flush=True)
    report = run(seed, minutes=minutes, logs=logs)
    print("\n".join(report.lines()))
    check(report)
    shutil.rmtree(logs)


if __name__ == "__main__":
    main(float(sys.argv[1]) if sys.argv[1:] else 15.0, int(sys.argv[2]) if sys.argv[2:] else None)
