"""The pipe against a broker that loses requests and answers, and judges sequences as Kafka does."""

import random
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from tidemill.client.kafka import pipeline as pipes
from tidemill.client.kafka.apis import PRODUCE
from tidemill.client.kafka.errors import ConnectionLost
from tidemill.client.kafka.options import parse_options
from tidemill.client.kafka.pipeline import IN_FLIGHT_MAX, ProducePipe
from tidemill.client.kafka.produce import produce_request
from tidemill.client.kafka.protocol import Answer, Buffer, Request
from tidemill.client.kafka.routing import RequestRouter
from tidemill.model.errors import DuplicateSequence, NotLeaderOrFollower, OutOfOrderSequence
from tidemill.model.topics import TopicPartition
from tidemill.wire.kafka.produce import ProduceOutcome, write_produce

VERSION = 9
REMEMBERED = 5
PARTITIONS = [TopicPartition("t", index) for index in range(3)]
AT_ONCE = replace(parse_options({"bootstrap.servers": "nowhere:1"}), retry_backoff_ms=0, retry_backoff_max_ms=0)


class ShakyBroker:
    """Takes batches of one number each; a fault is drawn for every request."""

    def __init__(self, rng: random.Random, fault_rate: float) -> None:
        self.written: dict[TopicPartition, list[int]] = {part: [] for part in PARTITIONS}
        self.faults: Counter[str] = Counter()
        self.heard = 0  # answers
        self._remembered = {part: deque[int](maxlen=REMEMBERED) for part in PARTITIONS}
        self._rng = rng
        self._fault_rate = fault_rate

    def fault(self) -> str:
        found = self._rng.choice(["lost", "unheard", "refused"]) if self._rng.random() < self._fault_rate else ""
        self.faults[found] += 1
        return found

    def append(self, part: TopicPartition, number: int) -> int:
        """The error code."""
        last = self._remembered[part]
        if number in last:
            return DuplicateSequence.code
        if last and number != last[-1] + 1:
            return OutOfOrderSequence.code
        last.append(number)
        self.written[part].append(number)
        return 0


class ShakyConnection:
    def __init__(self, broker: ShakyBroker) -> None:
        self.broken = False
        self._broker = broker
        self._answers: dict[int, Answer] = {}

    def ask(self, batches: Mapping[TopicPartition, Buffer]) -> int:
        fault = "lost" if self.broken else self._broker.fault()
        number = len(self._answers)
        self.broken |= fault in {"lost", "unheard"}
        if fault == "lost":
            return -1
        refused = next(iter(batches)) if fault == "refused" else None
        outcomes = [
            ProduceOutcome(
                part.partition,
                NotLeaderOrFollower.code if part == refused else self._broker.append(part, int(bytes(batch))),
            )
            for part, batch in batches.items()
        ]
        if fault == "unheard":
            return -1
        self._answers[number] = Answer(0, PRODUCE, VERSION, memoryview(write_produce(VERSION, [("t", outcomes)])))
        return number

    def answer(self, number: int, *, extra_s: float) -> Answer:
        assert extra_s
        if number not in self._answers:
            raise ConnectionLost("cut")
        self._broker.heard += 1
        return self._answers[number]


class ShakyRouter(RequestRouter):
    def __init__(self, broker: ShakyBroker) -> None:
        super().__init__(AT_ONCE)
        self._broker = broker
        self._connection = ShakyConnection(broker)

    def ask_leaders(self, wanted: Mapping[TopicPartition, Any], ask: Callable[..., Request], failures: Any) -> Any:
        assert ask(wanted).api is PRODUCE
        assert failures == []
        number = self._connection.ask(wanted)
        asked = [(self._connection, number)]
        if self._connection.broken:
            self._connection = ShakyConnection(self._broker)
        return asked


def pipe_to(router: RequestRouter) -> ProducePipe:
    return ProducePipe(router, lambda share: produce_request(share, acks=-1, timeout_ms=1, transactional_id=None))


def write(seed: int) -> ShakyBroker:
    """Send 60 requests, each to some of the partitions."""
    rng = random.Random(seed)
    broker = ShakyBroker(rng, 0.1)
    pipe = pipe_to(ShakyRouter(broker))
    numbers = dict.fromkeys(PARTITIONS, 0)
    for _ in range(60):
        chosen = rng.sample(PARTITIONS, rng.randint(1, len(PARTITIONS)))
        pipe.send({part: b"%d" % numbers[part] for part in chosen})
        for part in chosen:
            numbers[part] += 1
    pipe.drain()
    assert broker.written == {part: list(range(count)) for part, count in numbers.items()}, f"seed {seed}"
    return broker


def test_every_batch_is_written_once_and_in_order_whatever_is_lost() -> None:
    base = random.randrange(2**32)
    print(f"seeds from {base}")
    faults: Counter[str] = Counter()
    for seed in range(base, base + 200):
        faults += write(seed).faults
    assert min(faults[each] for each in ("lost", "unheard", "refused")) > 100


def test_more_on_the_way_than_a_broker_remembers_would_show(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipes, "IN_FLIGHT_MAX", REMEMBERED + 3)
    with pytest.raises((AssertionError, OutOfOrderSequence)):
        _ = [write(seed) for seed in range(200)]


def test_the_first_batch_to_a_partition_travels_alone() -> None:
    broker = ShakyBroker(random.Random(0), 0.0)
    pipe = pipe_to(ShakyRouter(broker))
    here, there, _ = PARTITIONS
    pipe.send({here: b"0"})
    assert broker.heard == 0
    pipe.send({here: b"1"})  # the broker knows the producer once it has answered
    assert broker.heard == 1
    for number in range(2, IN_FLIGHT_MAX + 1):
        pipe.send({here: b"%d" % number})
    assert broker.heard == 1
    pipe.send({there: b"0"})
    assert broker.heard == 1 + IN_FLIGHT_MAX


def test_only_so_many_bytes_travel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipes, "IN_FLIGHT_BYTES", 4)
    broker = ShakyBroker(random.Random(0), 0.0)
    pipe = pipe_to(ShakyRouter(broker))
    here = PARTITIONS[0]
    for number, heard in ((b"0", 0), (b"1", 1), (b"2", 1), (b"000003", 3), (b"4", 4)):
        pipe.send({here: number})
        assert broker.heard == heard
