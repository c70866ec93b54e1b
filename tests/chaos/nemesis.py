"""The faults of a chaos run. Each fault has ended when its call returns."""

import time
from collections.abc import Callable
from random import Random

from tests.chaos.cluster import PARTITIONS, Cluster

STEP_DOWN_S = 30.0


class Nemesis:
    """Injects faults. Each fault has ended when its call returns."""

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
        if cluster.disks.real:
            self.kinds |= {
                "disk full": self.fill_disk,
                "disk dead": self.break_disk,
                "power cut of all": self.cut_power,
            }

    def _leader(self) -> int:
        return self._cluster.leaders()[self._random.randrange(PARTITIONS)]

    def kill_leader(self) -> None:
        """Kill the leader with SIGKILL and restart it after a while."""
        victim = self._leader()
        self._cluster.kill(victim)
        time.sleep(self._random.uniform(3, 6))
        self._cluster.start(victim)

    def kill_all(self) -> None:
        """Kill all brokers at the same time. In-sync replicas have every acknowledged record."""
        for number in self._cluster.hosts.brokers:
            self._cluster.kill(number)
        for number in self._random.sample(sorted(self._cluster.hosts.brokers), len(self._cluster.hosts.brokers)):
            self._cluster.start(number)

    def pause_leader(self) -> None:
        """Suspend the leader for longer than its session, then let it continue."""
        victim = self._leader()
        self._cluster.pause(victim)
        time.sleep(self._random.uniform(1, 7))
        self._cluster.resume(victim)

    def cut_from_followers(self) -> None:
        """Cut the leader from the other brokers, but not from etcd and clients."""
        victim = self._leader()
        others = [number for number in self._cluster.hosts.brokers if number != victim]
        for other in others:
            self._cluster.hosts.cut(victim, self._cluster.hosts.brokers[other])
            self._cluster.hosts.cut(other, self._cluster.hosts.brokers[victim])
        self._rest_and_heal()

    def cut_from_etcd(self) -> None:
        """Cut the leader from etcd only. It must step down by its own clock."""
        self._cluster.hosts.cut(self._leader(), *self._cluster.hosts.members)
        self._rest_and_heal()

    def cut_one_way(self) -> None:
        """Drop the leader's packets to one follower, but not those in the other direction."""
        victim = self._leader()
        other = self._random.choice([number for number in self._cluster.hosts.brokers if number != victim])
        self._cluster.hosts.cut(victim, self._cluster.hosts.brokers[other])
        self._rest_and_heal()

    def isolate(self) -> None:
        """Cut a broker from etcd and all other brokers."""
        victim = self._leader()
        others = [address for number, address in self._cluster.hosts.brokers.items() if number != victim]
        self._cluster.hosts.cut(victim, *others, *self._cluster.hosts.members)
        self._rest_and_heal()

    def kill_etcd_leader(self) -> None:
        """Kill the leader of etcd. etcd elects another one, and brokers should hardly notice."""
        member = self._cluster.etcd.leader()
        member.kill()
        time.sleep(self._random.uniform(2, 4))
        self._cluster.etcd.start(member)

    def rolling_restart(self) -> None:
        """Stop and restart every broker gracefully, one at a time."""
        for number in self._cluster.hosts.brokers:
            self._cluster.stop(number)
            self._cluster.start(number)
            self._cluster.settle()

    def fill_disk(self) -> None:
        """Fill the leader's disk. Other brokers must lead until space is free again."""
        victim = self._leader()
        disk = self._cluster.disks.of[victim]
        disk.fill()
        try:
            self._others_lead(victim)
            time.sleep(self._random.uniform(1, 4))
        finally:
            disk.free()

    def break_disk(self) -> None:
        """Make every flush of the leader fail. Others must lead until it restarts on a working disk."""
        victim = self._leader()
        disk = self._cluster.disks.of[victim]
        disk.cut_power()
        self._others_lead(victim)
        self._cluster.kill(victim)
        disk.unmount()
        disk.mount()
        self._cluster.start(victim)

    def cut_power(self) -> None:
        """Cut the power of all machines at the same time, so that they lose everything that was not flushed."""
        disks = self._cluster.disks.of
        for disk in disks.values():
            disk.cut_power()
        for number, disk in disks.items():
            self._cluster.kill(number)
            disk.unmount()
            disk.mount()
        for number in self._random.sample(sorted(disks), len(disks)):
            self._cluster.start(number)

    def _others_lead(self, victim: int) -> None:
        """Wait until the broker leads nothing, while it still runs."""
        end = time.monotonic() + STEP_DOWN_S
        while victim in (leaders := self._cluster.leaders()).values() or -1 in leaders.values():
            assert time.monotonic() < end, f"broker {victim} does not step down: {leaders}"
            time.sleep(0.2)

    def _rest_and_heal(self) -> None:
        time.sleep(self._random.uniform(3, 7))
        self._cluster.hosts.heal()
