"""TLS handshakes: begun when a first message has arrived, a few at a time, and ended when they stop."""

import asyncio
import socket
from collections.abc import AsyncIterator
from functools import partial
from typing import NamedTuple

import pytest
from tests.support.waiting import eventually_async

from tidemill.servers.kafka import handshakes as module
from tidemill.servers.kafka.handshakes import Handshakes, Opening

HELLO = b"\x16\x03\x01\x00\x04tea!"


class Begun(NamedTuple):
    """A connection, the client's end of it, and what happened to it."""

    opening: Opening
    client: socket.socket
    events: list[str]


class Stage:
    """Handshakes that never end by themselves."""

    def __init__(self, waiting_max: int = 10) -> None:
        self.heard: list[Opening] = []
        self.handshakes = Handshakes(waiting_max, self.heard.append)
        self.all: list[Begun] = []

    def add(self) -> Begun:
        accepted, client = socket.socketpair()
        accepted.setblocking(False)
        begun = Begun(Opening("home", accepted), client, [])
        opening = begun.opening

        def start() -> asyncio.Task[None]:
            begun.events.append("started")
            task = asyncio.get_running_loop().create_task(asyncio.sleep(60))
            task.add_done_callback(lambda _: end())
            return task

        def end() -> None:
            begun.events.append("ended")
            self.handshakes.remove(opening)
            accepted.close()

        opening.start, opening.end = start, end
        self.handshakes.add(opening)
        self.all.append(begun)
        return begun


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    made = Stage()
    yield made
    made.handshakes.close()
    await eventually_async(lambda: not len(made.handshakes))
    for each in made.all:
        each.client.close()


@pytest.fixture
def two_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HANDSHAKES_AT_ONCE", 2)
    monkeypatch.setattr(module, "STOPPED_S", 0.1)


async def test_a_handshake_begins_when_the_first_message_has_arrived(stage: Stage) -> None:
    begun = stage.add()
    begun.client.send(HELLO[:3])
    await asyncio.sleep(0)
    await asyncio.sleep(0.03)
    assert begun.events == []
    assert stage.heard == []
    begun.client.send(HELLO[3:])
    await eventually_async(lambda: begun.events == ["started"])
    assert stage.heard == [begun.opening]
    assert begun.opening.accepted.recv(100) == HELLO  # nothing was taken


@pytest.mark.parametrize("first", [b"GET / HTTP/1.1\r\n", b"\x00"])
async def test_bytes_that_are_not_tls_fail_the_handshake(stage: Stage, first: bytes) -> None:
    begun = stage.add()
    begun.client.send(first)
    await eventually_async(lambda: begun.events == ["started"])


async def test_a_client_that_leaves_is_closed(stage: Stage) -> None:
    begun = stage.add()
    begun.client.close()
    await eventually_async(lambda: begun.events == ["ended"])


async def test_a_silent_client_is_closed_after_a_time(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HANDSHAKE_TIMEOUT_S", 0.05)
    begun = stage.add()
    begun.client.send(HELLO[:6])
    await eventually_async(lambda: begun.events == ["ended"])


async def test_the_others_wait_in_order_and_stopped_ones_make_room(stage: Stage, two_at_once: None) -> None:
    every = [stage.add() for _ in range(5)]
    for each in every:
        each.client.send(HELLO)
        await eventually_async(partial(_contains, stage.heard, each.opening))
    assert [each.events for each in every] == [["started"]] * 2 + [[]] * 3
    await eventually_async(lambda: every[2].events == every[3].events == ["started"])
    assert every[0].events == every[1].events == ["started", "ended"]
    await eventually_async(lambda: every[4].events == ["started"])
    assert sum(each.events == ["started"] for each in every) <= 2


def _contains(heard: list[Opening], opening: Opening) -> bool:
    return opening in heard


async def test_those_that_wait_are_bounded(two_at_once: None) -> None:
    stage = Stage(waiting_max=3)
    every = [stage.add() for _ in range(7)]
    for each in every:
        each.client.send(HELLO)
    await eventually_async(lambda: len(stage.heard) == 7)
    assert sum(each.events == ["ended"] for each in every) == 2
    stage.handshakes.close()
    await eventually_async(lambda: not len(stage.handshakes))
    for each in every:
        each.client.close()
