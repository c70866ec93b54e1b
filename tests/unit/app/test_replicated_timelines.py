"""A broker looks for the file of local timelines when its timelines become replicated."""

from pathlib import Path

import pytest

from tidemill.app.replicated_timelines import check_local_file
from tidemill.model.errors import InvalidConfig
from tidemill.timelines.core.timeline import Create
from tidemill.timelines.sqlite import open_store


async def test_a_local_file_is_found(tmp_path: Path) -> None:
    path = tmp_path / "timelines.db"
    assert not check_local_file(path)
    store = await open_store(path)
    await store.govern(Create("reminders"))
    await store.close()
    assert check_local_file(path)


def test_a_file_that_cannot_be_read_is_not_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "timelines.db"
    path.write_bytes(b"not a database" * 100)
    with pytest.raises(InvalidConfig, match="cannot be read"):
        check_local_file(path)
