"""The sink without Spark, at a real broker: every row is there once, whatever fails.

Drivers are killed at every step of the protocol and restarted with other tasks, old drivers continue, and tasks fail.

TIDEMILL_TEST_SERVERS=host:port runs them against another broker, such as Apache Kafka.
"""

import os
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import count
from threading import Lock
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tidemill.client.kafka import LATEST, KafkaClient
from tidemill.client.kafka.options import ClientOptions
from tidemill.client.kafka.pipeline import ProducePipe
from tidemill.model.errors import MessageTooLarge
from tidemill.model.topics import TopicPartition as Partition
from tidemill.pipelines.errors import LayoutChanged, PipelineError, SinkFenced, WrongOption
from tidemill.pipelines.source.client_pool import SHARE_MIN
from tidemill.pipelines.topic import writing
from tidemill.pipelines.topic.committing import CommitPlan, Written, abandon, abort, begin, commit, commit_all
from tidemill.pipelines.topic.core.options import parse_sink
from tidemill.pipelines.topic.writing import TaskAttempt, TaskWriter, write_micro_batch
from tidemill.records.header import BatchHeader, iter_headers
from tidemill.testing import Broker

ANOTHER_BROKER = "TIDEMILL_TEST_SERVERS"
QUERY = "a-query"
PARTITIONS = 2
ROWS = 12
LIMIT_S = 30


class Died(Exception):
    pass


class Life:
    """How many steps are left, of a driver and of all connections that it has; None: as many as it likes."""

    def __init__(self, steps: int | None) -> None:
        self._left = steps
        self._lock = Lock()

    def step(self) -> None:
        with self._lock:
            if self._left is not None:
                if self._left == 0:
                    raise Died
                self._left -= 1


class Mortal(KafkaClient):
    """A client that ends right before or right after one of its requests; the code that uses it fails there."""

    def __init__(
        self, options: Mapping[str, str] | ClientOptions, last_step: int | None, life: Life | None = None
    ) -> None:
        super().__init__(options)
        self._life = life or Life(last_step)

    def another(self) -> "Mortal":
        return Mortal(self._options, None, self._life)

    def _around(self, request: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        self._life.step()
        answer = request(*arguments, **named)
        self._life.step()
        return answer

    def _at_transaction(self, *arguments: Any) -> Any:
        return self._around(super()._at_transaction, *arguments)

    def _at_group(self, *arguments: Any) -> Any:
        return self._around(super()._at_group, *arguments)

    def pipe(self, *arguments: Any) -> Any:
        return MortalPipe(super().pipe(*arguments), self._around)


class MortalPipe:
    """Its requests are those of a mortal client, too."""

    def __init__(self, pipe: ProducePipe, around: Callable[..., Any]) -> None:
        self._pipe = pipe
        self._around = around

    def send(self, batches: Any) -> None:
        self._around(self._pipe.send, batches)

    def drain(self) -> None:
        self._around(self._pipe.drain)


class Sink:
    """A streaming query; each driver of it has a client of its own."""

    def __init__(self, servers: str, topic: str) -> None:
        given = {"kafka.bootstrap.servers": servers, "topic": topic, "kafka.retry.backoff.ms": "5"}
        self.options = parse_sink({**given, "kafka.retry.backoff.max.ms": "20"}, streaming=True)
        self.servers = servers
        self.topic = topic
        self.name = f"tidemill-{topic}"
        self.begun: dict[int, CommitPlan] = {}
        """What each process of Spark's that begins micro-batches remembers."""

    def begin(self, client: KafkaClient, process: int) -> CommitPlan:
        plan = self.begun[process] = begin(client, self.name, self.begun.pop(process, None))
        return plan

    def driver(self, last_step: int | None = None) -> Mortal:
        return Mortal(self.options.client, last_step)

    def write(self, client: KafkaClient, plan: CommitPlan, batch: int, tasks: int) -> list[Written]:
        of = (QUERY, batch)
        return [
            write_micro_batch(client, self.options, plan, TaskAttempt(task), [rows(batch, task, tasks)], of=of)
            for task in range(tasks)
        ]

    def run(self, batch: int, tasks: int, last_step: int | None = None, process: int = 0) -> None:
        """A driver from its start to the end of a micro-batch."""
        with self.driver(last_step) as client:
            plan = self.begin(client, process)
            commit(client, plan, self.write(client, plan, batch, tasks), QUERY, batch)


def rows(batch: int, task: int, tasks: int) -> pa.RecordBatch:
    values = [f"{batch}/{n}" for n in range(task, ROWS, tasks)]
    return pa.record_batch({"key": [value[-1] for value in values], "value": values})


def heads(client: KafkaClient, part: Partition) -> list[BatchHeader]:
    """The headers of the batches that hold rows."""
    end = client.list_offsets({part: LATEST})[part].offset
    found = [each for piece in client.read_range(part, 0, end) for _, each in iter_headers(piece.records)]
    return [header for header in found if not header.control]


def expected(batches: int) -> list[str]:
    return sorted(f"{batch}/{n}" for batch in range(batches) for n in range(ROWS))


def visible(sink: Sink) -> list[str]:
    settings = {"bootstrap.servers": sink.servers, "group.id": "look", "enable.partition.eof": True}
    consumer = Consumer({**settings, "enable.auto.commit": False})
    consumer.assign([TopicPartition(sink.topic, index, OFFSET_BEGINNING) for index in range(PARTITIONS)])
    found, open_ends = [], PARTITIONS
    while open_ends:
        message = consumer.poll(LIMIT_S)
        assert message is not None
        if message.error() is None:
            found.append(message.value().decode())
        else:
            open_ends -= 1
    consumer.close()
    return sorted(found)


def nothing_open(sink: Sink) -> bool:
    """Whether readers of committed records get to the end."""
    wanted = {Partition(sink.topic, index): LATEST for index in range(PARTITIONS)}
    with sink.driver() as client:
        return client.list_offsets(wanted, committed=True) == client.list_offsets(wanted, committed=False)


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    given = os.environ.get(ANOTHER_BROKER)
    if given:
        yield given
        return
    with Broker() as running:
        yield running.bootstrap_servers


@pytest.fixture
def sink(servers: str, request: pytest.FixtureRequest) -> Sink:
    topic = f"{request.node.originalname}-{uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(topic, PARTITIONS)])[topic].result(LIMIT_S)
    return Sink(servers, topic)


def test_a_driver_killed_at_any_step_restarts_with_other_tasks(sink: Sink) -> None:
    died = 0
    for batch in count():
        try:
            sink.run(batch, tasks=2, last_step=batch)
        except Died:
            died += 1
            sink.run(batch, tasks=1 + batch % 3)
        else:
            break
    assert died > 30  # the walk of two tasks, before and after each request
    assert visible(sink) == expected(died + 1)
    assert nothing_open(sink)


def test_drivers_that_die_again_and_again(sink: Sink) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    for batch in range(10):
        for _ in range(draw.randrange(4)):
            try:
                sink.run(batch, draw.randrange(1, 5), last_step=draw.randrange(80), process=draw.randrange(2))
            except Died:
                continue
            # Spark did not note that the micro-batch is done: it runs again all the same
        sink.run(batch, draw.randrange(1, 5))
    assert visible(sink) == expected(10)
    assert nothing_open(sink)


def looks_around(sink: Sink, process: int) -> bool:
    """Whether a process that begins asks what is open."""
    asked: list[str] = []

    class Counting(Mortal):
        def open_transactions(self, prefix: str) -> set[str]:
            asked.append(prefix)
            return super().open_transactions(prefix)

    with Counting(sink.options.client, None) as client:
        sink.begin(client, process)
    return bool(asked)


def test_only_what_may_be_open_is_looked_for(sink: Sink) -> None:
    sink.run(0, tasks=2)
    assert not looks_around(sink, process=0)  # it knows that all was written
    assert looks_around(sink, process=0)  # the micro-batch that it has just begun was not
    sink.run(1, tasks=2)
    assert looks_around(sink, process=1)  # another driver, which knows nothing
    assert looks_around(sink, process=0)  # another process was here
    sink.run(2, tasks=2)
    with sink.driver() as client:
        abandon(client, sink.name)
    assert looks_around(sink, process=0)


@pytest.mark.parametrize("streaming", [True, False])
def test_attempts_that_do_not_count_leave_nothing_open(sink: Sink, streaming: bool) -> None:
    with sink.driver() as client:
        plan = sink.begin(client, 0)
        attempts = [TaskWriter(client, sink.options, TaskAttempt(0, attempt), sink.name) for attempt in range(3)]
        _, second, _ = [attempt.write([rows(0, 0, 1)]) for attempt in attempts]  # one is lost, one came too late
        if streaming:
            commit(client, plan, [second], QUERY, 0)
        else:
            commit_all(client, sink.name, [second])
    assert nothing_open(sink)
    assert visible(sink) == expected(1)


def test_many_tasks_are_committed_side_by_side_and_whole(sink: Sink) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    many = 3 * SHARE_MIN
    for batch in range(3):
        written = 10 * many  # about so many steps are behind its tasks when the driver commits
        with suppress(Died):
            sink.run(batch, many, last_step=written + draw.randrange(6 * many))
        sink.run(batch, many + batch)
    assert visible(sink) == expected(3)
    assert nothing_open(sink)


def test_more_tasks_than_before_die_undecided(sink: Sink) -> None:
    sink.run(0, tasks=2)
    with sink.driver() as client:  # it dies after its tasks have written
        sink.write(client, sink.begin(client, 0), 1, tasks=9)
    assert not nothing_open(sink)
    sink.run(1, tasks=1)
    assert nothing_open(sink)
    assert visible(sink) == expected(2)


def test_a_replaced_driver_changes_nothing(sink: Sink) -> None:
    with sink.driver() as zombie:
        plan = begin(zombie, sink.name)
        reported = sink.write(zombie, plan, 0, tasks=3)
        sink.run(0, tasks=2)
        with pytest.raises(SinkFenced, match="the transaction of task 0 was aborted"):
            commit(zombie, plan, reported, QUERY, 0)
        abort(zombie, reported)
    assert visible(sink) == expected(1)


def test_a_fenced_driver_cannot_decide(sink: Sink) -> None:
    with sink.driver() as first, sink.driver() as second:
        plan = begin(first, sink.name)
        first.init_producer(sink.name)  # the second driver begins, and has not come to the tasks' ids yet
        reported = sink.write(first, plan, 0, tasks=2)
        with pytest.raises(SinkFenced, match="another driver of the same query has taken over"):
            commit(first, plan, reported, QUERY, 0)
        assert visible(sink) == []
        abandon(second, sink.name)
    assert nothing_open(sink)
    assert visible(sink) == []


def decided_and_dead(sink: Sink, batch: int, tasks: int, ended: int) -> None:
    """A driver that dies after its decision, with so many transactions committed."""

    class Stopping(Mortal):
        decisions = 0

        def end_transaction(self, producer: Any, *, commit: bool) -> None:
            if self.decisions > ended:
                raise Died
            super().end_transaction(producer, commit=commit)
            self.decisions += 1

    with Stopping(sink.options.client, None) as client:
        plan = begin(client, sink.name)
        reported = sink.write(client, plan, batch, tasks)
        with pytest.raises(Died):
            commit(client, plan, reported, QUERY, batch)


def give_up(sink: Sink, tasks: int) -> None:
    """What a broker does with transactions that are open for too long."""
    with sink.driver() as client:
        for task in range(tasks):
            client.init_producer(f"{sink.name}-{task}")


def test_a_decision_whose_transactions_all_timed_out_is_taken_back(sink: Sink) -> None:
    decided_and_dead(sink, 0, tasks=3, ended=0)
    give_up(sink, tasks=3)
    sink.run(0, tasks=2)
    assert visible(sink) == expected(1)


def test_a_decision_that_timed_out_in_part_is_filled_up_by_the_same_tasks(sink: Sink) -> None:
    decided_and_dead(sink, 0, tasks=3, ended=1)
    with sink.driver() as client:
        for task in (1, 2):
            client.init_producer(f"{sink.name}-{task}")
    with pytest.raises(LayoutChanged, match="written in part by 3 tasks and now has 2"):
        sink.run(0, tasks=2)
    with sink.driver() as client:
        abandon(client, sink.name)
    assert nothing_open(sink)
    sink.run(0, tasks=3)
    sink.run(1, tasks=1)
    assert visible(sink) == expected(2)


def test_transactions_that_are_lost_during_the_commit_are_reported(sink: Sink) -> None:
    class Robbed(Mortal):
        def commit_offsets_in(self, *arguments: Any) -> None:
            super().commit_offsets_in(*arguments)
            self.init_producer(f"{sink.name}-1")

    with Robbed(sink.options.client, None) as client:
        plan = begin(client, sink.name)
        reported = sink.write(client, plan, 0, tasks=2)
        with pytest.raises(PipelineError, match="the broker aborted transactions after they were decided"):
            commit(client, plan, reported, QUERY, 0)
    sink.run(0, tasks=2)
    assert visible(sink) == expected(1)


def test_an_abort_leaves_nothing(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "GATHERED_BYTES", 1)  # what goes wrong does so after something was written
    with sink.driver() as client:
        plan = begin(client, sink.name)
        sink.write(client, plan, 0, tasks=3)
        assert not nothing_open(sink)
        abandon(client, sink.name)
        assert nothing_open(sink)
        sound, broken = (
            rows(0, 0, 1).append_column("partition", pa.array([0] * (ROWS - 1) + [last], pa.int32())) for last in (1, 9)
        )
        with pytest.raises(WrongOption, match="has no partition 9"):
            TaskWriter(client, sink.options, TaskAttempt(0), sink.name).write([sound, broken])
        huge = pa.record_batch({"key": ["k"], "value": ["x" * 2_000_000]})
        with pytest.raises(MessageTooLarge):
            TaskWriter(client, sink.options, TaskAttempt(0), sink.name).write([rows(0, 0, 1), huge, rows(0, 0, 1)])
        patient = replace(sink.options, timeout_ms=10**9)
        with pytest.raises(WrongOption, match=r"transaction\.timeout\.ms: 1000000000 is more than the broker's"):
            TaskWriter(client, patient, TaskAttempt(0), sink.name).write([rows(0, 0, 1)])
    assert nothing_open(sink)
    assert visible(sink) == []


def test_an_abandoned_micro_batch_that_was_decided_is_committed(sink: Sink) -> None:
    decided_and_dead(sink, 0, tasks=2, ended=0)
    with sink.driver() as client:
        abandon(client, sink.name)
    assert visible(sink) == expected(1)
    sink.run(0, tasks=4)
    assert visible(sink) == expected(1)


def test_a_new_query_of_the_same_sink_begins_at_its_own_first_micro_batch(sink: Sink) -> None:
    sink.run(0, tasks=2)
    with sink.driver() as client:
        plan = begin(client, sink.name)
        of = ("another-query", 0)
        reported = write_micro_batch(client, sink.options, plan, TaskAttempt(0), [rows(1, 0, 1)], of=of)
        commit(client, plan, [reported], *of)
    assert visible(sink) == expected(2)


def test_batch_writes_are_committed_without_a_ledger(sink: Sink) -> None:
    with sink.driver() as client:
        tasks = [
            TaskWriter(client, sink.options, TaskAttempt(task), sink.name).write([rows(0, task, 2)]) for task in (0, 1)
        ]
        assert visible(sink) == []
        commit_all(client, sink.name, tasks)
    assert visible(sink) == expected(1)


@pytest.mark.parametrize("gathered_bytes", [1, 300, writing.GATHERED_BYTES])
def test_batches_are_large_however_small_those_of_arrow_are(
    sink: Sink, monkeypatch: pytest.MonkeyPatch, gathered_bytes: int
) -> None:
    monkeypatch.setattr(writing, "GATHERED_BYTES", gathered_bytes)
    with sink.driver() as client:
        written = TaskWriter(client, sink.options, TaskAttempt(0), sink.name)
        commit_all(client, sink.name, [written.write(rows(batch, 0, 1) for batch in range(50))])
        assert [len(heads(client, Partition(sink.topic, index))) for index in range(PARTITIONS)] == [1] * PARTITIONS
    assert visible(sink) == expected(50)


def test_small_arrow_batches_are_gathered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "GATHERED_BYTES", 1000)
    sizes = [1, 0, 20, 3, 500, 0, 1, 0]
    batches = [
        pa.record_batch({"value": [f"{batch}-{row:03}" for row in range(size)]}) for batch, size in enumerate(sizes)
    ]
    found = list(writing.gathered(batches))
    assert [each.num_rows for each in found] == [524, 1]
    assert pa.Table.from_batches(found) == pa.Table.from_batches([each for each in batches if each.num_rows])
    assert list(writing.gathered([])) == list(writing.gathered(batches[1:2])) == []


def test_many_drafts_are_small(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "DRAFTS_BYTES_MAX", PARTITIONS * 500)
    monkeypatch.setattr(writing, "DRAFT_BYTES_MIN", 200)
    monkeypatch.setattr(writing, "REQUEST_BYTES", 1)
    with sink.driver() as client:
        written = TaskWriter(client, sink.options, TaskAttempt(0), sink.name)
        commit_all(client, sink.name, [written.write(rows(batch, 0, 1) for batch in range(50))])
        found = heads(client, Partition(sink.topic, 0))
    assert len(found) > 5
    assert all(header.size <= 500 for header in found)
    assert visible(sink) == expected(50)


def test_without_transactions_rows_are_there_at_once(sink: Sink) -> None:
    given = {"kafka.bootstrap.servers": sink.servers, "topic": sink.topic, "transactional": "false"}
    options = parse_sink(given)
    with sink.driver() as client:
        TaskWriter(client, options, TaskAttempt(0), "").write([rows(0, 0, 1)])
    assert visible(sink) == expected(1)
