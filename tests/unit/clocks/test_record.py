"""The clock record in a data directory."""

import json
from pathlib import Path

from tidemill.clocks.core.doubt import LastTrusted
from tidemill.clocks.record import FILE, ClockRecord


def test_a_record_comes_back_as_it_was_written(tmp_path: Path) -> None:
    record = ClockRecord(tmp_path, ())
    for seen in (LastTrusted(7, "boot", 5), LastTrusted(7, "boot", 5, 4, True, 3, -2)):
        record.write(seen)
        assert record.read() == seen


def test_a_record_without_the_wrong_time_begins_its_wait_again(tmp_path: Path) -> None:
    fields = {"format": 1, "wall_ms": 7, "boot_id": "boot", "boot_ms": 5, "doubted_ms": 4, "is_earliest": True}
    (tmp_path / FILE).write_text(json.dumps(fields))
    assert ClockRecord(tmp_path, ()).read() == LastTrusted(7, "boot", 5, 4, True)
