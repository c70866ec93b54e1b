"""A broker does not leave messages behind when its timelines become replicated."""

from pathlib import Path

import pytest

from tidemill.app.replicated_timelines import check_local_file
from tidemill.model.errors import InvalidConfig
from tidemill.timelines.core.timeline import Create
from tidemill.timelines.sqlite import open_store


async def keep(path: Path, *names: str) -> None:
    store = await open_store(path)
    for name in names:
        await store.govern(Create(name))
    await store.close()


async def test_a_local_file_with_timelines_is_named_with_the_next_step(tmp_path: Path) -> None:
    path = tmp_path / "timelines.db"
    await keep(path, "reminders", "__waiting.orders")
    with pytest.raises(InvalidConfig, match=r"1 timelines, such as 'reminders', .*start with --timelines sqlite:"):
        check_local_file(path)


async def test_a_local_file_without_messages_of_its_own_does_no_harm(tmp_path: Path) -> None:
    check_local_file(tmp_path / "timelines.db")
    await keep(tmp_path / "timelines.db", "__waiting.orders")
    check_local_file(tmp_path / "timelines.db")


def test_a_file_that_cannot_be_read_is_not_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "timelines.db"
    path.write_bytes(b"not a database" * 100)
    with pytest.raises(InvalidConfig, match="cannot be read"):
        check_local_file(path)
