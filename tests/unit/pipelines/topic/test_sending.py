"""The thread of a sink: order, how much waits, and what happens when the broker refuses something."""

from queue import SimpleQueue
from threading import Event, Thread
from typing import cast

import pytest

from tidemill.client.kafka import KafkaClient
from tidemill.model.errors import NotEnoughReplicas
from tidemill.model.topics import TopicPartition
from tidemill.pipelines.topic.sending import REQUESTS_WAITING_MAX, Batches, Sender

HERE = TopicPartition("a", 0)
WAIT_S = 20


def batch(number: int) -> Batches:
    return {HERE: bytearray([number])}


class Pipe:
    """Takes batches; holds the first one up until it is released, and refuses the numbers in a set."""

    def __init__(self, refused: int | None = None) -> None:
        self.sent: list[int] = []
        self.events: list[str] = []
        self.open = Event()
        self._refused = refused

    def send(self, batches: Batches) -> None:
        assert self.open.wait(WAIT_S)
        number = batches[HERE][0]
        if number == self._refused:
            raise NotEnoughReplicas("not now")
        self.sent.append(number)
        self.events.append(f"sent {number}")

    def drain(self) -> None:
        self.events.append("drained")


class Client:
    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe

    def pipe(self, transactional_id: str | None) -> Pipe:
        assert transactional_id == "id"
        return self._pipe


def sender(pipe: Pipe) -> Sender:
    return Sender(cast("KafkaClient", Client(pipe)), "id")


def test_calls_and_batches_are_sent_in_order() -> None:
    pipe = Pipe()
    pipe.open.set()
    with sender(pipe) as out:
        for number in range(5):
            out.produce(batch(number))
        assert out.call(lambda: list(pipe.sent)) == [0, 1, 2, 3, 4]
        out.produce(batch(5))
        out.drain()
    assert pipe.events == [*(f"sent {number}" for number in range(6)), "drained"]


def test_only_a_few_requests_wait() -> None:
    pipe, done = Pipe(), SimpleQueue[int]()

    def owner() -> None:
        with sender(pipe) as out:
            for number in range(REQUESTS_WAITING_MAX + 3):
                out.produce(batch(number))
                done.put(number)
            out.drain()

    thread = Thread(target=owner)
    thread.start()
    assert [done.get(timeout=WAIT_S) for _ in range(REQUESTS_WAITING_MAX + 1)] == list(range(REQUESTS_WAITING_MAX + 1))
    assert done.empty()  # the next one waits for the first, which the pipe holds up
    pipe.open.set()
    thread.join(WAIT_S)
    assert pipe.sent == list(range(REQUESTS_WAITING_MAX + 3))


def test_an_error_stops_sending_and_reaches_the_owner() -> None:
    pipe = Pipe(refused=1)
    with sender(pipe) as out:
        for number in range(3):
            out.produce(batch(number))
        pipe.open.set()
        with pytest.raises(NotEnoughReplicas):
            out.drain()
        with pytest.raises(NotEnoughReplicas):
            out.produce(batch(3))
    assert pipe.sent == [0]


def test_the_error_of_a_call_is_that_of_the_call_alone() -> None:
    pipe = Pipe()
    pipe.open.set()
    with sender(pipe) as out:
        with pytest.raises(ZeroDivisionError):
            out.call(lambda: 1 // 0)
        out.produce(batch(7))
        out.drain()
    assert pipe.sent == [7]
