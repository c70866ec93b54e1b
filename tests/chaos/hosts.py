"""Hosts for brokers and etcd: network namespaces on a bridge. Links can be cut one way or both ways.

A link is cut with a wrong hardware address for the other host. Packets leave and do not arrive, as behind a dead
switch. This needs no firewall. Where namespaces are not allowed, everything runs on loopback and no link is cut.
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
        """The command prefix that runs a program on the broker's host."""
        # `ip netns exec` would also copy all mounts, and then a disk could not be unmounted under the program.
        return ["nsenter", f"--net=/var/run/netns/{self._name(broker)}"] if self.real else []

    def up(self) -> None:
        """Create the hosts."""
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
        """Drop everything that the broker sends to these addresses."""
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
        """Restore all links."""
        if self.real:
            for number in self.brokers:
                _ip("-n", self._name(number), "neigh", "flush", "nud", "permanent", "dev", "eth0")

    def _ip(self, last: int) -> str:
        return f"{self._net}.{last}" if self.real else LOOPBACK

    def _name(self, broker: int) -> str:
        return f"{self._tag}-{broker}"


def _allowed(probe: str) -> bool:
    """Whether namespaces and bridges can be made here. It needs root, and some containers forbid it."""
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
    """Provide hosts during the block."""
    made = Hosts(brokers, members)
    try:
        made.up()
        yield made
    finally:
        made.down()
