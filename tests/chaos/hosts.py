"""Hosts of their own for brokers and etcd: network namespaces on a bridge, whose links can be cut one way or both.

A link is cut by a wrong hardware address for the other host: packets leave and nobody gets them, like behind a dead
switch. That needs no firewall. Where that is not allowed everything is on loopback, and nothing can be cut.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

NOWHERE = "02:00:00:00:00:99"
LOOPBACK = "127.0.0.1"
CLIENTS = 254


class Hosts:
    """Addresses by name, and the cuts between them."""

    def __init__(self, brokers: int, members: int) -> None:
        self._tag = f"tm{os.getpid()}"
        self.real = _allowed(self._tag + "p")
        self._net = f"10.{77 + os.getpid() % 100}.{os.getpid() // 100 % 250}"
        self.brokers = {number: self._ip(number) for number in range(1, brokers + 1)}
        self.members = [self._ip(200 + number) for number in range(members)]

    def command(self, broker: int) -> list[str]:
        """What a program is started with to run on the broker's host."""
        # `ip netns exec` would give it a copy of all mounts, too: a disk could not be taken from under it.
        return ["nsenter", f"--net=/var/run/netns/{self._name(broker)}"] if self.real else []

    def up(self) -> None:
        """Make the hosts."""
        if not self.real:
            return
        bridge = self._tag + "b"
        _ip("link", "add", bridge, "type", "bridge")
        _ip("link", "set", bridge, "up")
        for address in (self._ip(CLIENTS), *self.members):
            _ip("addr", "add", f"{address}/24", "dev", bridge)
        for number, address in self.brokers.items():
            name, plug = self._name(number), f"{self._tag}v{number}"
            _ip("netns", "add", name)
            _ip("link", "add", plug, "type", "veth", "peer", "name", "eth0", "netns", name)
            _ip("link", "set", plug, "master", bridge, "up")
            _ip("-n", name, "addr", "add", f"{address}/24", "dev", "eth0")
            _ip("-n", name, "link", "set", "eth0", "up")
            _ip("-n", name, "link", "set", "lo", "up")

    def down(self) -> None:
        """Remove the hosts."""
        if self.real:
            for number in self.brokers:
                subprocess.run(["ip", "netns", "del", self._name(number)], check=False, capture_output=True)
            subprocess.run(["ip", "link", "del", self._tag + "b"], check=False, capture_output=True)

    def cut(self, broker: int, *others: str) -> None:
        """Nothing that the broker sends to these addresses arrives."""
        for address in others:
            _ip(
                "-n",
                self._name(broker),
                "neigh",
                "replace",
                address,
                "lladdr",
                NOWHERE,
                "dev",
                "eth0",
                "nud",
                "permanent",
            )

    def heal(self) -> None:
        """Every link is whole again."""
        if self.real:
            for number in self.brokers:
                _ip("-n", self._name(number), "neigh", "flush", "nud", "permanent", "dev", "eth0")

    def _ip(self, last: int) -> str:
        return f"{self._net}.{last}" if self.real else LOOPBACK

    def _name(self, broker: int) -> str:
        return f"{self._tag}-{broker}"


def _allowed(probe: str) -> bool:
    """Whether namespaces and bridges may be made here: as root, and not in every container."""
    if os.geteuid() != 0 or not all(map(shutil.which, ("ip", "nsenter"))):
        return False
    steps = (["netns", "add", probe], ["link", "add", probe, "type", "bridge"])
    able = all(subprocess.run(["ip", *step], check=False, capture_output=True).returncode == 0 for step in steps)
    for step in (["netns", "del", probe], ["link", "del", probe]):
        subprocess.run(["ip", *step], check=False, capture_output=True)
    return able


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


@contextmanager
def hosts(brokers: int, members: int) -> Iterator[Hosts]:
    """Hosts for the length of the block."""
    made = Hosts(brokers, members)
    try:
        made.up()
        yield made
    finally:
        made.down()
