"""Decides when a client is notified about drifts: when a clock begins or ceases to differ, not with every change."""

from collections.abc import Mapping

BEGINS_MS, ENDS_MS = 1_000, 800


class DriftNotices:
    """The drifts that one client knows."""

    def __init__(self) -> None:
        self._apart: frozenset[str] = frozenset()

    def changes(self, drifts_ms: Mapping[str, float]) -> bool:
        """Take the drifts of now; whether other clocks than before differ by more than a second."""
        apart = frozenset(
            target for target, ms in drifts_ms.items() if abs(ms) > (ENDS_MS if target in self._apart else BEGINS_MS)
        )
        changed, self._apart = apart != self._apart, apart
        return changed

    def apart(self, drifts_ms: Mapping[str, float]) -> dict[str, int]:
        """The drifts of the clocks that differ, as of the last look."""
        return {target: round(ms) for target, ms in sorted(drifts_ms.items()) if target in self._apart}
