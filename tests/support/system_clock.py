"""Changes the wall clock of child processes with libfaketime.

Monotonic clocks are not affected, as when a real clock is set.
"""

from pathlib import Path

import pytest

PREFIX = Path("/usr/lib")
LIBRARY = "*/faketime/libfaketimeMT.so.1"


class SystemClock:
    """The wall clock of child processes."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.jump("+0")

    def jump(self, by: str) -> None:
        """Set it: `+120s` is two minutes ahead of the real time."""
        self._file.write_text(f"{by}\n")


@pytest.fixture
def system_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SystemClock:
    """The clock of every process that is started from now on."""
    [library] = PREFIX.glob(LIBRARY)  # the Debian package libfaketime
    clock = SystemClock(tmp_path / "clock")
    monkeypatch.setenv("LD_PRELOAD", str(library))
    monkeypatch.setenv("FAKETIME_TIMESTAMP_FILE", str(tmp_path / "clock"))
    monkeypatch.setenv("FAKETIME_CACHE_DURATION", "1")
    monkeypatch.setenv("FAKETIME_DONT_FAKE_MONOTONIC", "1")
    return clock
