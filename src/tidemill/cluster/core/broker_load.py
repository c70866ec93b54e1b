"""The load of a broker: what it measures about itself, smoothed, and published to the others under its session.

Each second gives a sample. The averages have a half-life of `HALF_LIFE_S`. The level follows the largest measurement as
a share of its limit. A level is left only well below the value at which it began, so that it does not flap.

A broker writes its load when something has changed clearly, at most once in `PUBLISH_S`, and once in `REPEAT_S` when
nothing has. One document has at most `LOAD_BYTES_MAX` bytes, mostly a few hundred. So n brokers write at most n / 5
documents a second.

The document also has the producers of timelines, which come and go more often than consumers. The registration has
those.
"""

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from math import isfinite
from typing import Any, NamedTuple

LOADS = "loads/"
HALF_LIFE_S = 10.0
PUBLISH_S = 5.0
REPEAT_S = 30.0
STALE_S = 90.0
"""A load that was not repeated for so long is not known any more."""
LOAD_BYTES_MAX = 16_384
PRODUCERS_BYTES_MAX = 8_192
"""The names of timelines with producers in one document; the timelines with the most producers come first."""
PEERS_MAX = 100
"""The most peers in one document."""
CHANGE_SHARE = 0.25
"""A value that changed by a quarter, and by more than its floor, is worth a write."""
BUSY, OVERLOADED = 0.5, 1.0
LEAVE_SHARE = 0.7
"""A level ends below this share of the value at which it began."""
SLOW_MS, SLOW_ENDS_MS = 250.0, 150.0
"""The round trip from which on a peer counts as slow, and below which it no longer does."""


class LoadLevel(StrEnum):
    """How loaded a broker is."""

    NORMAL = "normal"
    BUSY = "busy"
    OVERLOADED = "overloaded"


class LoadSample(NamedTuple):
    """What a broker measured, or the averages of it."""

    requests_per_s: float = 0.0
    queue: float = 0.0
    """Requests that are being served."""
    loop_delay_ms: float = 0.0
    cpu_cores: float = 0.0
    flush_ms: float = 0.0
    disk_used: float = 0.0
    """The share of the disk that is in use."""
    clients_ms: float = 0.0
    """The round trip to the consumers of timelines."""


IDLE = LoadSample()
LIMITS = LoadSample(
    requests_per_s=float("inf"),  # how many requests are too many depends on the requests
    queue=1_000.0,
    loop_delay_ms=200.0,
    cpu_cores=1.8,  # the event loop has one core: a broker is busy at 0.9
    flush_ms=500.0,
    disk_used=0.97,
    clients_ms=float("inf"),  # one client far away says nothing about the broker
)
"""A broker is overloaded when one measurement reaches its limit, and busy from half of it on."""
HALVED = LIMITS._replace(disk_used=float("inf"))
FLOORS = LoadSample(50.0, 20.0, 5.0, 0.1, 5.0, 0.05, 10.0)
"""Smaller changes are noise."""


class LoadReport(NamedTuple):
    """What a broker publishes about its load and about its connections to the others."""

    level: LoadLevel = LoadLevel.NORMAL
    averages: LoadSample = IDLE
    round_trips_ms: Mapping[int, float] = {}
    slow: frozenset[int] = frozenset()
    """Peers with a long round trip."""
    missing: frozenset[int] = frozenset()
    """Peers that are registered and do not answer this broker."""
    producers: Mapping[str, int] = {}
    """The number of producers of each timeline that use this broker."""


def level_after(before: LoadLevel, averages: LoadSample) -> LoadLevel:
    """The level that follows from the averages and the level so far."""
    pressure = pressure_of(averages)
    stays = LEAVE_SHARE if before is LoadLevel.OVERLOADED else 1.0
    if pressure >= OVERLOADED * stays:
        return LoadLevel.OVERLOADED
    stays = LEAVE_SHARE if before is not LoadLevel.NORMAL else 1.0
    return LoadLevel.BUSY if _busy_pressure(averages) >= BUSY * stays else LoadLevel.NORMAL


def pressure_of(averages: LoadSample) -> float:
    """The largest measurement, as a share of its limit."""
    return max(value / limit for value, limit in zip(averages, LIMITS, strict=True))


def _busy_pressure(averages: LoadSample) -> float:
    """The same without the disk: one that is half full is not half loaded."""
    return max(value / limit for value, limit in zip(averages, HALVED, strict=True))


@dataclass(slots=True)
class LoadAverage:
    """The averages of one broker, and its level."""

    level: LoadLevel = LoadLevel.NORMAL
    averages: LoadSample = IDLE
    _has_begun: bool = False

    def add(self, sample: LoadSample, elapsed_s: float) -> None:
        """Take the measurements of the last `elapsed_s`."""
        kept = 0.5 ** (max(0.0, elapsed_s) / HALF_LIFE_S) if self._has_begun else 0.0
        self._has_begun = True
        mixed = (kept * old + (1 - kept) * new for old, new in zip(self.averages, sample, strict=True))
        self.averages = LoadSample(*mixed)
        self.level = level_after(self.level, self.averages)


@dataclass(slots=True)
class RoundTrips:
    """The round trips from one broker to its peers, smoothed per measurement."""

    averages_ms: dict[int, float] = field(default_factory=dict)
    slow: frozenset[int] = frozenset()

    def add(self, node_id: int, round_trip_ms: float) -> None:
        """Take one round trip."""
        before_ms = self.averages_ms.get(node_id, round_trip_ms)
        self.averages_ms[node_id] = now_ms = (3 * before_ms + round_trip_ms) / 4
        if now_ms >= SLOW_MS:
            self.slow |= {node_id}
        elif now_ms < SLOW_ENDS_MS:
            self.slow -= {node_id}

    def keep(self, nodes: Collection[int]) -> None:
        """Forget the brokers that are not registered."""
        self.averages_ms = {node: ms for node, ms in self.averages_ms.items() if node in nodes}
        self.slow &= frozenset(nodes)


def is_slow(node_id: int, reports: Mapping[int, LoadReport]) -> bool:
    """Whether most of the brokers that measure the round trip to this one find it slow."""
    measured = [one for node, one in reports.items() if node != node_id and node_id in one.round_trips_ms]
    return 2 * sum(node_id in one.slow for one in measured) > len(measured)


def is_worth_writing(before: LoadReport | None, now: LoadReport, age_s: float) -> bool:
    """Whether a load is published, when the last one was written so long ago."""
    if before is None or age_s >= REPEAT_S:
        return True
    if age_s < PUBLISH_S:
        return False
    if before._replace(averages=now.averages, round_trips_ms=now.round_trips_ms) != now:
        return True
    pairs = zip(before.averages, now.averages, FLOORS, strict=True)
    return any(abs(new - old) > max(floor, CHANGE_SHARE * max(new, old)) for old, new, floor in pairs)


def load_key(node_id: int) -> str:
    """The key of a broker's load."""
    return f"{LOADS}{node_id}"


def encode_load(report: LoadReport) -> bytes:
    """Encode a load for coordination; of very many peers only the first are named."""
    document: dict[str, Any] = {"level": report.level.value}
    document |= {name: _short(value) for name, value in report.averages._asdict().items()}
    trips = sorted(report.round_trips_ms.items())[:PEERS_MAX]
    document["peers"] = {str(node): _short(ms) for node, ms in trips}
    document["slow"] = sorted(report.slow)[:PEERS_MAX]
    document["missing"] = sorted(report.missing)[:PEERS_MAX]
    document["producers"] = dict(_fitting(report.producers))
    return json.dumps(document, separators=(",", ":")).encode()


def _fitting(producers: Mapping[str, int]) -> Iterator[tuple[str, int]]:
    """The timelines with the most producers, as many as a document may have."""
    size = 0
    for name, count in sorted(producers.items(), key=lambda each: (-each[1], each[0])):
        size += len(json.dumps(name)) + len(str(count)) + 2
        if size > PRODUCERS_BYTES_MAX:
            return
        yield name, count


def _short(value: float) -> float:
    """Three significant figures."""
    return float(f"{value:.3g}")


def decode_load(document: bytes) -> LoadReport | None:
    """Decode the output of `encode_load`; None for a document that cannot be read, as if there were none."""
    try:
        read = json.loads(document)
        averages = LoadSample(*(_number(read[name]) for name in LoadSample._fields))
        return LoadReport(
            LoadLevel(read["level"]),
            averages,
            {int(node): _number(ms) for node, ms in read["peers"].items()},
            frozenset(map(int, read["slow"])),
            frozenset(map(int, read["missing"])),
            {str(name): int(count) for name, count in read["producers"].items()},
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _number(value: Any) -> float:
    number = float(value)
    if not isfinite(number) or number < 0:
        raise ValueError(value)
    return number
