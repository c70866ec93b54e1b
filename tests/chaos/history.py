"""Records the requests and responses of clients, and finds contradictions in them.

One producer sends each value once to one partition. A value has a number that grows. A send ends as acknowledged (with
its offset), refused, or unknown. Unknown must never count as refused. At the end the whole log is read.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

SEPARATOR = b":"
ABORTED = b"aborted:"
"""The prefix of values in transactions that were aborted on purpose."""


class Sent(NamedTuple):
    """An acknowledged value: its place and its time (all on one clock).

    librdkafka reports no offset when it infers from a later response that an earlier batch has arrived.
    """

    partition: int
    offset: int | None
    at: float


class Read(NamedTuple):
    """A record as a consumer read it."""

    partition: int
    offset: int
    value: bytes


@dataclass
class History:
    """Everything that clients saw."""

    acknowledged: dict[bytes, Sent] = field(default_factory=dict)
    unknown: set[bytes] = field(default_factory=set)
    polled: dict[str, list[list[Read]]] = field(default_factory=dict)
    """The records of each consumer by group, in order, from one assignment to the next."""
    final: list[Read] = field(default_factory=list)
    copies: dict[str, list[Read]] = field(default_factory=dict)
    """The committed records in each copier's copy at the end."""

    def problems(self) -> dict[str, list[str]]:
        """The contradictions by kind; empty when there are none."""
        found: dict[str, list[str]] = defaultdict(list)
        log = {(row.partition, row.offset): row.value for row in self.final}
        self._check_log(found, log)
        self._check_acknowledged(found, log)
        for group, consumers in self.polled.items():
            self._check_group(found, log, group, consumers)
        for copier, rows in self.copies.items():
            self._check_copy(found, copier, rows)
        return dict(found)

    def _check_log(self, found: dict[str, list[str]], log: Mapping[tuple[int, int], bytes]) -> None:
        for value, count in Counter(log.values()).items():
            if count > 1:
                found["duplicated"].append(f"{value.decode()} x{count}")
        last: dict[tuple[bytes, int], int] = {}
        for (partition, offset), value in sorted(log.items()):
            producer, _, number = value.split(SEPARATOR)
            if int(number) <= last.get((producer, partition), -1):
                found["reordered"].append(f"{value.decode()} at {partition}/{offset}")
            last[producer, partition] = int(number)

    def _check_copy(self, found: dict[str, list[str]], copier: str, rows: Sequence[Read]) -> None:
        """Check that the copy has every record once, in order, and no aborted one."""
        wanted, got = _by_partition(self.final), _by_partition(rows)
        found_aborted = [row for row in rows if row.value.startswith(ABORTED)]
        if found_aborted:
            found["aborted and seen"] += [f"{copier}: {row}" for row in found_aborted]
        for partition in wanted.keys() | got.keys():
            source, copy = wanted[partition], got[partition]
            for value, count in Counter(copy).items():
                if count > 1:
                    found["copied twice"].append(f"{copier}: {value.decode()} x{count}")
            found["not copied"] += [f"{copier}: {value.decode()}" for value in set(source) - set(copy)]
            if not found["not copied"] and not found["copied twice"] and not found_aborted and source != copy:
                found["copied out of order"].append(f"{copier}: partition {partition}")
        for kind in ("not copied", "copied twice"):
            if not found[kind]:
                del found[kind]

    def _check_acknowledged(self, found: dict[str, list[str]], log: Mapping[tuple[int, int], bytes]) -> None:
        there = set(log.values())
        for value, sent in self.acknowledged.items():
            if value not in there:
                found["lost"].append(f"{value.decode()} at {sent.partition}/{sent.offset}")
            elif sent.offset is not None and log.get((sent.partition, sent.offset)) != value:
                found["moved"].append(f"{value.decode()} was reported at {sent.partition}/{sent.offset}")
        for value in there - self.acknowledged.keys() - self.unknown:
            found["never sent"].append(value.decode())

    def _check_group(
        self,
        found: dict[str, list[str]],
        log: Mapping[tuple[int, int], bytes],
        group: str,
        consumers: Sequence[Sequence[Read]],
    ) -> None:
        seen: set[bytes] = set()
        for rows in consumers:
            position: dict[int, int] = {}
            for row in rows:
                seen.add(row.value)
                if log.get((row.partition, row.offset)) != row.value:
                    found["seen and gone"].append(f"{group}: {row}")
                if row.offset <= position.get(row.partition, -1):
                    found["went back"].append(f"{group}: {row} after {position[row.partition]}")
                position[row.partition] = row.offset
        for value in self.acknowledged.keys() - seen:
            found["never consumed"].append(f"{group}: {value.decode()}")


def _by_partition(rows: Sequence[Read]) -> defaultdict[int, list[bytes]]:
    """The values of each partition in offset order."""
    found: defaultdict[int, list[bytes]] = defaultdict(list)
    for row in sorted(rows):
        found[row.partition].append(row.value)
    return found


def stalls(acknowledged: Sequence[Sent], began: float, ended: float) -> dict[int, float]:
    """The longest time without an acknowledgement, by partition, between two moments."""
    longest: dict[int, float] = {}
    times: dict[int, list[float]] = defaultdict(list)
    for sent in acknowledged:
        times[sent.partition].append(sent.at)
    for partition, moments in times.items():
        before = max((at for at in moments if at <= began), default=began)
        after = min((at for at in moments if at >= ended), default=ended)
        inside = sorted({max(before, began), *(at for at in moments if began < at < ended), after})
        longest[partition] = max((b - a for a, b in pairwise(inside)), default=0.0)
    return longest
