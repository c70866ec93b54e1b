"""Chaos: faults one after the other while clients of two families produce and consume; then the books are checked.

    python -m tests.chaos.run [MINUTES] [SEED]

Prints what was acknowledged, lost and duplicated, the faults by kind, how long failovers took and the longest stall.
A run that injected nothing, or in which too little was acknowledged, has failed, too.
"""

import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from statistics import median

from tests.chaos.cluster import PARTITIONS, TOPIC, Cluster, running_cluster
from tests.chaos.history import stalls
from tests.chaos.workload import Workload

RATE = 60.0
"""Records a second and producer: a broker that is starved looks like a fault."""
REST_S = 2.0
ACKNOWLEDGED_PER_S_MIN = 10.0


@dataclass
class Report:
    """What a run has shown."""

    seconds: float = 0.0
    acknowledged: int = 0
    problems: dict[str, list[str]] = field(default_factory=dict)
    faults: Counter[str] = field(default_factory=Counter)
    failovers: list[float] = field(default_factory=list)
    longest_stall: float = 0.0

    def lines(self) -> list[str]:
        """The report for people."""
        lost, twice = (len(self.problems.get(kind, ())) for kind in ("lost", "duplicated"))
        faults = ", ".join(f"{kind} {count}" for kind, count in sorted(self.faults.items()))
        told = [
            f"acknowledged {self.acknowledged}, lost {lost}, duplicated {twice} in {self.seconds:.0f} s",
            f"{sum(self.faults.values())} faults: {faults}",
            f"longest stall of a partition {self.longest_stall:.1f} s",
        ]
        if self.failovers:
            told.insert(2, f"failover p50 {median(self.failovers):.1f} s, max {max(self.failovers):.1f} s")
        return told + [f"WRONG {kind}: {len(rows)}, first {rows[:3]}" for kind, rows in self.problems.items()]


class Nemesis:
    """The faults; each is over when its call returns."""

    def __init__(self, cluster: Cluster, random: Random) -> None:
        self._cluster = cluster
        self._random = random
        self.kinds: dict[str, Callable[[], None]] = {
            "leader killed": self.kill_leader,
            "leader paused": self.pause_leader,
            "etcd leader killed": self.kill_etcd_leader,
            "rolling restart": self.rolling_restart,
            "all brokers killed": self.kill_all,
        }
        if cluster.hosts.real:
            self.kinds |= {
                "leader cut from followers": self.cut_from_followers,
                "leader cut from etcd": self.cut_from_etcd,
                "leader cut one way": self.cut_one_way,
                "broker alone": self.isolate,
            }

    def _leader(self) -> int:
        return self._cluster.leaders()[self._random.randrange(PARTITIONS)]

    def kill_leader(self) -> None:
        """kill -9, and back after a while."""
        victim = self._leader()
        self._cluster.kill(victim)
        time.sleep(self._random.uniform(3, 6))
        self._cluster.start(victim)

    def kill_all(self) -> None:
        """Every broker at the same time; whoever was in sync has everything."""
        for number in self._cluster.hosts.brokers:
            self._cluster.kill(number)
        for number in self._random.sample(sorted(self._cluster.hosts.brokers), len(self._cluster.hosts.brokers)):
            self._cluster.start(number)

    def pause_leader(self) -> None:
        """Stopped for longer than its session lasts, then it goes on as if nothing had been."""
        victim = self._leader()
        self._cluster.pause(victim)
        time.sleep(self._random.uniform(1, 7))
        self._cluster.resume(victim)

    def cut_from_followers(self) -> None:
        """The leader reaches etcd and clients, but no other broker."""
        victim = self._leader()
        others = [number for number in self._cluster.hosts.brokers if number != victim]
        for other in others:
            self._cluster.hosts.cut(victim, self._cluster.hosts.brokers[other])
            self._cluster.hosts.cut(other, self._cluster.hosts.brokers[victim])
        self._rest_and_heal()

    def cut_from_etcd(self) -> None:
        """The leader reaches everybody but etcd: it must step down by its own clock."""
        self._cluster.hosts.cut(self._leader(), *self._cluster.hosts.members)
        self._rest_and_heal()

    def cut_one_way(self) -> None:
        """What the leader sends to one follower is lost, what comes back is not."""
        victim = self._leader()
        other = self._random.choice([number for number in self._cluster.hosts.brokers if number != victim])
        self._cluster.hosts.cut(victim, self._cluster.hosts.brokers[other])
        self._rest_and_heal()

    def isolate(self) -> None:
        """A broker reaches neither etcd nor the others."""
        victim = self._leader()
        others = [address for number, address in self._cluster.hosts.brokers.items() if number != victim]
        self._cluster.hosts.cut(victim, *others, *self._cluster.hosts.members)
        self._rest_and_heal()

    def kill_etcd_leader(self) -> None:
        """etcd elects another one; brokers must not notice much."""
        member = self._cluster.etcd.leader()
        member.kill()
        time.sleep(self._random.uniform(2, 4))
        self._cluster.etcd.start(member)

    def rolling_restart(self) -> None:
        """Every broker in turn stops in order and comes back."""
        for number in self._cluster.hosts.brokers:
            self._cluster.stop(number)
            self._cluster.start(number)
            self._cluster.settle()

    def _rest_and_heal(self) -> None:
        time.sleep(self._random.uniform(3, 7))
        self._cluster.hosts.heal()


def run(seed: int, *, minutes: float = 0.0, faults: Sequence[str] = ()) -> Report:
    """Faults of these kinds in this order, or any for so long; the books are checked at the end."""
    random = Random(seed)
    report = Report()
    with running_cluster() as cluster:
        nemesis = Nemesis(cluster, random)
        workload = Workload(cluster.bootstrap, TOPIC, PARTITIONS, RATE)
        workload.start()
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
        workload.stop_consuming()
        workload.read_everything()
        assert not workload.failures, workload.failures
        report.seconds = ended - began
        report.acknowledged = len(workload.history.acknowledged)
        report.problems = workload.history.problems()
        report.longest_stall = max(stalls(workload.acknowledged(), began + 3, ended).values(), default=0.0)
    return report


def _inject(nemesis: Nemesis, kind: str, cluster: Cluster, workload: Workload, report: Report) -> None:
    print(f"{kind} ...", flush=True)
    at = time.monotonic()
    nemesis.kinds[kind]()
    cluster.settle()
    report.faults[kind] += 1
    if kind == "leader killed":
        report.failovers.append(max(stalls(workload.acknowledged(), at, time.monotonic()).values(), default=0.0))


def check(report: Report) -> None:
    """Nothing is wrong, and something has happened."""
    assert not report.problems, report.problems
    assert sum(report.faults.values()) > 0, "no fault was injected"
    assert report.acknowledged > ACKNOWLEDGED_PER_S_MIN * report.seconds, f"only {report.acknowledged} acknowledged"


def main(minutes: float = 15.0, seed: int | None = None) -> None:
    """The soak."""
    seed = time.time_ns() % 100_000 if seed is None else seed
    print(f"seed {seed}, {minutes:g} minutes", flush=True)
    report = run(seed, minutes=minutes)
    print("\n".join(report.lines()))
    check(report)


if __name__ == "__main__":
    main(float(sys.argv[1]) if sys.argv[1:] else 15.0, int(sys.argv[2]) if sys.argv[2:] else None)
