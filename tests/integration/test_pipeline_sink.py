"""The sink without Spark: drivers that die between two commits, tasks that fail, zombies; every row is there once."""

import random
from collections.abc import Iterator
from contextlib import suppress

import pyarrow as pa
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from tidemill.client.raw import RawClient
from tidemill.model.errors import TidemillError
from tidemill.pipelines.core.errors import LayoutChanged, WrongOption
from tidemill.pipelines.core.sink import parse_sink
from tidemill.pipelines.writing import TaskWriter, Written, abort, commit
from tidemill.testing import Broker

TASKS = 3
LIMIT_S = 30


class DriverDied(Exception):
    pass


class Sink:
    """A query with three tasks, whose driver may die."""

    def __init__(self, servers: str, topic: str) -> None:
        self.client = RawClient({"bootstrap.servers": servers})
        self.options = parse_sink({"kafka.bootstrap.servers": servers, "topic": topic})
        self.topic = topic

    def write(self, batch: int, tasks: int = TASKS) -> list[Written]:
        return [self.task(index, batch).write([rows(batch, index)]) for index in range(tasks)]

    def task(self, index: int, batch: int) -> TaskWriter:
        return TaskWriter(self.client, self.options, f"tidemill-{self.topic}-{index}", batch)

    def die_in_commit(self, batch: int, after: int) -> None:
        """Commit like a driver that ends after so many tasks."""
        told = self.write(batch)

        class Dying(RawClient):
            left = after

            def end_transaction(self, *arguments: object, **named: object) -> None:
                if self.left == 0:
                    raise DriverDied
                self.left -= 1
                super().end_transaction(*arguments, **named)  # type: ignore[arg-type]  # handed on as they came

        with Dying(self.options.client) as client, suppress(DriverDied):
            commit(client, told, batch)


def rows(batch: int, task: int) -> pa.RecordBatch:
    return pa.record_batch({"key": [f"{task}"] * 5, "value": [f"{batch}/{task}/{n}" for n in range(5)]})


def expected(batches: int) -> list[str]:
    return sorted(f"{batch}/{task}/{n}" for batch in range(batches) for task in range(TASKS) for n in range(5))


def visible(broker: Broker, topic: str) -> list[str]:
    settings = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "look", "enable.partition.eof": True}
    consumer = Consumer({**settings, "enable.auto.commit": False})
    partitions = consumer.list_topics(topic, LIMIT_S).topics[topic].partitions
    consumer.assign([TopicPartition(topic, index, OFFSET_BEGINNING) for index in partitions])
    found, open_ends = [], len(partitions)
    while open_ends:
        message = consumer.poll(LIMIT_S)
        assert message is not None
        if message.error() is None:
            found.append(message.value().decode())
        else:
            open_ends -= 1
    consumer.close()
    return sorted(found)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(settings={"num.partitions": "2"}) as running:
        yield running


@pytest.fixture
def sink(broker: Broker, request: pytest.FixtureRequest) -> Iterator[Sink]:
    sink = Sink(broker.bootstrap_servers, request.node.name)
    yield sink
    sink.client.close()


def test_a_driver_that_dies_at_random_points(broker: Broker, sink: Sink) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    for batch in range(8):
        for _ in range(draw.randrange(3)):
            sink.die_in_commit(batch, after=draw.randrange(TASKS))
        commit(sink.client, sink.write(batch), batch)
        if draw.random() < 0.3:  # Spark did not note that the micro-batch is done
            commit(sink.client, sink.write(batch), batch)
    assert visible(broker, sink.topic) == expected(8)


def test_what_a_task_leaves_open_ends_when_it_runs_again(broker: Broker, sink: Sink) -> None:
    forgotten = sink.write(0)
    commit(sink.client, sink.write(0), 0)
    with pytest.raises(TidemillError):  # the zombie of the first driver
        commit(sink.client, forgotten, 0)
    assert visible(broker, sink.topic) == expected(1)


def test_an_abort_leaves_nothing(broker: Broker, sink: Sink) -> None:
    abort(sink.client, sink.write(0))
    assert visible(broker, sink.topic) == []
    broken = rows(0, 0).append_column("partition", pa.array([0, 0, 0, 0, 9], pa.int32()))
    with pytest.raises(WrongOption, match="has no partition 9"):
        sink.task(0, 0).write([rows(0, 0), broken])
    assert visible(broker, sink.topic) == []


def test_a_micro_batch_with_other_tasks_is_not_filled_up(broker: Broker, sink: Sink) -> None:
    sink.die_in_commit(0, 1)
    told = sink.write(0, tasks=2)
    with pytest.raises(LayoutChanged, match="written in part by 3 tasks and now has 2"):
        commit(sink.client, told, 0)
    abort(sink.client, told)
    commit(sink.client, sink.write(0), 0)
    assert visible(broker, sink.topic) == expected(1)


def test_without_transactions_rows_are_there_at_once(broker: Broker, sink: Sink) -> None:
    servers = {"kafka.bootstrap.servers": broker.bootstrap_servers}
    sink.options = parse_sink({**servers, "topic": sink.topic, "transactional": "false"})
    sink.write(0)
    assert visible(broker, sink.topic) == expected(1)
