"""The last values of one series, by key: a ring of slots for each key, and a bounded number of keys.

A slot is the time divided by the interval of the samples, so the slots of several brokers can be compared. A value is
kept for `slots` slots. When there are too many keys, the one without a value for the longest time is dropped. Pure.
"""

from array import array
from collections.abc import Mapping
from heapq import nlargest
from math import isnan, nan


class SampleRing:
    """One series. `slots` and `keys_max` bound its memory: 8 bytes for each slot of each key."""

    def __init__(self, slots: int, keys_max: int = 1) -> None:
        self._slots = slots
        self._keys_max = keys_max
        self._values: dict[str, array[float]] = {}
        self._last: dict[str, int] = {}

    @property
    def keys(self) -> list[str]:
        """The keys that have values, sorted."""
        return sorted(self._values)

    def put(self, slot: int, values: Mapping[str, float]) -> None:
        """Keep the values of a slot. Of too many values the largest count."""
        kept = values
        if len(values) > self._keys_max:
            kept = dict(nlargest(self._keys_max, values.items(), key=lambda each: each[1]))
        for key, value in kept.items():
            ring = self._ring(key, slot)
            ring[slot % self._slots] = value
            self._last[key] = slot

    def values(self, key: str, last_slot: int, count: int) -> list[float | None]:
        """The values of the slots up to `last_slot`, oldest first. None for a slot without a value."""
        ring = self._values.get(key)
        if ring is None:
            return [None] * count
        newest = self._last[key]
        return [
            ring[slot % self._slots]
            if newest - self._slots < slot <= newest and not isnan(ring[slot % self._slots])
            else None
            for slot in range(last_slot - count + 1, last_slot + 1)
        ]

    def forget(self, before_slot: int) -> None:
        """Drop the keys that have no value since a slot."""
        for key in [key for key, last in self._last.items() if last < before_slot]:
            self._drop(key)

    def _ring(self, key: str, slot: int) -> "array[float]":
        """The ring of a key, in which no slot before this one has the value of an earlier round."""
        ring = self._values.get(key)
        if ring is None or slot < self._last[key]:  # the clock was set back: what was kept has no place any more
            if ring is None and len(self._values) >= self._keys_max:
                self._drop(min(self._last, key=lambda each: self._last[each]))
            ring = self._values[key] = array("d", [nan]) * self._slots
            self._last[key] = slot
        for missed in range(max(self._last[key], slot - self._slots) + 1, slot):
            ring[missed % self._slots] = nan
        return ring

    def _drop(self, key: str) -> None:
        del self._values[key], self._last[key]
