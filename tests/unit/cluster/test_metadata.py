"""The view of a broker: it lists again what it missed (B21), and a writer waits until its write is seen."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tidemill.cluster import metadata
from tidemill.cluster.core.view import CONTROLLER, Touched
from tidemill.cluster.interface import Changed, WatchGap
from tidemill.cluster.local import LocalCoordination
from tidemill.cluster.metadata import ClusterMetadata
from tidemill.model.errors import RequestTimedOut


class Forgetful(LocalCoordination):
    """Forgets the changes in between when the test says so."""

    gaps = 0

    async def watch(self, prefix: str, after_revision: int) -> AsyncIterator[Changed]:
        async for change in super().watch(prefix, after_revision):
            if self.gaps:
                self.gaps -= 1
                raise WatchGap
            yield change


@asynccontextmanager
async def following(folder: Path) -> AsyncIterator[tuple[Forgetful, ClusterMetadata]]:
    store = await Forgetful.open(folder)
    assert isinstance(store, Forgetful)
    known = ClusterMetadata(store, {})
    await known.load()

    async def note(_: Touched) -> None:
        await asyncio.sleep(0)

    task = asyncio.create_task(known.follow(note))
    yield store, known
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await store.close()


async def test_b21_a_gap_in_the_watch_lists_every_key_again(tmp_path: Path) -> None:
    async with following(tmp_path) as (store, known):
        first = await store.compare_and_put(CONTROLLER, b"1", 0)
        assert first is not None
        await known.caught_up(first)
        seen = [known.view.controller]
        store.gaps = 1
        second = await store.compare_and_put(CONTROLLER, b"2", first)
        assert second is not None
        await known.caught_up(second)
        seen.append(known.view.controller)
        store.gaps = 1
        third = await store.compare_and_put(CONTROLLER, None, second)
        assert third is not None
        await known.caught_up(third)
        seen.append(known.view.controller)
        assert seen == [1, 2, -1], "what is new is seen, and what is gone"
        assert store.gaps == 0


async def test_a_wait_without_an_end_gives_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "CATCH_UP_S", 0.01)

    async with following(tmp_path) as (_, known):
        with pytest.raises(RequestTimedOut):
            await known.caught_up(1_000_000)
