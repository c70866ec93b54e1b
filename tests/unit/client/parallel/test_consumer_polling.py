"""The polling thread of the parallel consumer, with a client that only records its calls."""

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as Position

from tidemill.client.parallel import consumer as module
from tidemill.client.parallel.consumer import COMMITTED_S, DRAIN_POLL_S, METADATA_S, MISSING_S, ParallelConsumer
from tidemill.client.parallel.metadata import METADATA_BYTES_MAX, encode
from tidemill.client.parallel.offsets import CompletedRun
from tidemill.client.parallel.options import Halted, Retry
from tidemill.client.parallel.record import ParallelRecord
from tidemill.model.topics import TopicPartition

CONFIG = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g"}
PLACE = TopicPartition("orders", 0)
OTHER = TopicPartition("orders", 1)


def error_of(code: int) -> KafkaException:
    return KafkaException(KafkaError(code, "the reason"))


class Client:
    """Stands for confluent-kafka's consumer."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.commits: list[list[tuple[int, int, str]]] = []
        self.errors: list[KafkaException] = []
        self.refused: dict[int, KafkaError] = {}
        self.topics = {"orders"}
        self.known: list[Position] = []

    def assignment(self) -> list[str]:
        return ["all"]

    def pause(self, places: list[str]) -> None:
        self.calls.append(f"pause {places[0]}")

    def resume(self, places: list[str]) -> None:
        self.calls.append(f"resume {places[0]}")

    def commit(self, *, offsets: list[Position], asynchronous: bool) -> list[Any]:
        assert not asynchronous
        self.commits.append([(each.partition, each.offset, each.metadata) for each in offsets])
        if self.errors:
            raise self.errors.pop(0)
        return [Answered(each, self.refused.get(each.partition)) for each in offsets]

    def committed(self, _: list[Position], timeout_s: float) -> list[Position]:
        assert timeout_s == COMMITTED_S
        if self.errors:
            raise self.errors.pop(0)
        return self.known

    def list_topics(self, *, timeout: float) -> Any:
        assert timeout == METADATA_S
        self.calls.append("list")
        if self.errors:
            raise self.errors.pop(0)
        return self

    def close(self) -> None:
        self.calls.append("close")


class Clock:
    """Stands for the module `time`."""

    def __init__(self, on_sleep: Callable[[], None] = lambda: None) -> None:
        self.now_s = 100.0
        self.slept: list[float] = []
        self._on_sleep = on_sleep

    def monotonic(self) -> float:
        return self.now_s

    def monotonic_ns(self) -> int:
        return int(self.now_s * 1e9)

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now_s += seconds
        self._on_sleep()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


class Answered:
    """A committed offset, or its error."""

    def __init__(self, position: Position, error: KafkaError | None) -> None:
        self.topic, self.partition, self.error = position.topic, position.partition, error


def consumer(topics: tuple[str, ...] = ("orders",), **options: Any) -> tuple[ParallelConsumer, Client]:
    made, client = ParallelConsumer({**CONFIG, **options.pop("config", {})}, topics, **options), Client()
    made._client = client
    for place in (PLACE, OTHER):
        made._queue.assign(place)
    return made, client


def receive(made: ParallelConsumer, *offsets: int, place: TopicPartition = PLACE) -> None:
    made._queue.put([ParallelRecord(*place, offset, b"%d" % offset, b"", (), 0) for offset in offsets])


def handle(made: ParallelConsumer, count: int = 1) -> None:
    for _ in range(count):
        record = made._queue.take()
        assert record is not None
        made.succeeded(record, 0.0)


def test_fetching_pauses_at_the_limit_and_resumes_at_half_of_it() -> None:
    made, client = consumer(max_in_flight=4)
    receive(made, 0, 1, 2)
    made._balance(paused=False)
    assert client.calls == []
    receive(made, 3)
    made._balance(paused=False)
    made._balance(paused=False)
    assert client.calls == ["pause all"]
    handle(made, 2)
    made._balance(paused=False)
    assert client.calls == ["pause all"]
    handle(made)
    made._balance(paused=False)
    assert client.calls == ["pause all", "resume all"]
    made._balance(paused=True)
    assert client.calls[2:] == ["pause all"]


def test_a_rebalance_repeats_the_pause() -> None:
    made, client = consumer(max_in_flight=1)
    receive(made, 0)
    made._balance(paused=False)
    made._assigned(client, [])
    made._balance(paused=False)
    assert client.calls == ["pause all", "pause all"]
    made._balance(paused=False)
    assert len(client.calls) == 2


def test_a_poll_ends_for_a_due_commit_or_retry(clock: Clock) -> None:
    made, _ = consumer(commit_interval_ms=5_000)
    made._committed_at = (99.0, 0)
    assert made._patience_s(0.1) == 0.1
    assert made._patience_s(60.0) == 4.0
    receive(made, 0)
    record = made._queue.take()
    assert record is not None
    made._queue.retry(record, 100_250)
    assert made._patience_s(60.0) == 0.25
    clock.now_s = 100.3
    assert made._patience_s(60.0) == 0.0


def test_offsets_are_committed_after_the_interval_or_enough_records(clock: Clock) -> None:
    made, client = consumer(commit_interval_ms=5_000, commit_every=2)
    made._committed_at = (clock.now_s, 0)
    receive(made, *range(5))
    handle(made)
    made._commit_when_due()
    assert client.commits == []
    handle(made)
    made._commit_when_due()
    assert client.commits == [[(0, 2, "")]]
    handle(made)
    clock.now_s = 104.9
    made._commit_when_due()
    assert len(client.commits) == 1
    clock.now_s = 105.0
    made._commit_when_due()
    assert client.commits[1:] == [[(0, 3, "")]]
    clock.now_s = 110.0
    made._commit_when_due()
    assert len(client.commits) == 2, "nothing has changed"


def test_only_partitions_with_new_offsets_are_committed() -> None:
    made, client = consumer()
    receive(made, 0)
    receive(made, 7, place=OTHER)
    handle(made, 2)
    made._commit()
    receive(made, 8, place=OTHER)
    handle(made)
    made._commit()
    assert [sorted(each) for each in client.commits] == [[(0, 1, ""), (1, 8, "")], [(1, 9, "")]]
    assert made._commits == 2


def test_a_refused_offset_is_committed_again_and_the_others_are_not() -> None:
    made, client = consumer()
    receive(made, 0)
    receive(made, 7, place=OTHER)
    handle(made, 2)
    client.refused = {1: KafkaError(KafkaError.REQUEST_TIMED_OUT, "late")}
    made._commit()
    client.refused = {}
    made._commit()
    assert client.commits[1:] == [[(1, 8, "")]]


def test_a_failed_commit_is_repeated_with_the_next_one() -> None:
    made, client = consumer()
    receive(made, 0)
    handle(made)
    client.errors = [error_of(KafkaError.REBALANCE_IN_PROGRESS)]
    made._commit()
    assert made._commits == 0
    made._commit()
    assert client.commits == [[(0, 1, "")]] * 2


def test_metadata_that_is_too_large_is_shortened_and_then_left_out() -> None:
    made, client = consumer(metadata_bytes_max=100_000)
    receive(made, 0, 1)
    first = made._queue.take()
    assert first is not None
    handle(made)
    client.errors = [error_of(KafkaError.OFFSET_METADATA_TOO_LARGE)] * 2
    made._metadata_bytes_max = METADATA_BYTES_MAX + 1
    made._commit()
    gap = encode(0, [CompletedRun(1, 1)])
    assert client.commits == [[(0, 0, gap)], [(0, 0, gap)], [(0, 0, "")]]
    assert made._metadata_bytes_max == 0


def test_a_missing_topic_halts_unless_topics_may_be_created(clock: Clock) -> None:
    for allowed, reason in (("false", "cannot read bills: there is no such topic"), ("true", "None")):
        made, client = consumer(("orders", "bills", "^all.*"), config={"allow.auto.create.topics": allowed})
        made._check_topics()
        assert client.calls == [], "the client reports missing topics itself"
        made._topics_checked_at_s = clock.now_s + 0.1
        made._check_topics()
        assert client.calls == [], "it is too early"
        made._topics_checked_at_s = clock.now_s
        made._check_topics()
        made._check_topics()
        assert client.calls == ["list"]
        assert str(made._halted) == reason


def test_topics_are_checked_later_while_no_broker_answers(clock: Clock) -> None:
    made, client = consumer(("bills",))
    client.errors = [error_of(KafkaError._ALL_BROKERS_DOWN)]
    made._topics_checked_at_s = clock.now_s
    made._check_topics()
    assert made._halted is None
    assert made._topics_checked_at_s == clock.now_s + MISSING_S


def test_records_that_were_complete_before_are_not_handled_again() -> None:
    made, client = consumer()
    client.known = [Position("orders", 0, 5, metadata=encode(5, [CompletedRun(6, 6)])), Position("orders", 1, -1001)]
    made._assigned(client, [Position("orders", 0), Position("orders", 1)])
    receive(made, 5, 6, 7)
    assert made._queue.counts.skipped == 1
    taken = [made._queue.take() for _ in range(2)]
    assert [each.offset for each in taken if each is not None] == [5, 7]


def test_an_assignment_without_known_offsets_handles_everything() -> None:
    made, client = consumer()
    client.errors = [error_of(KafkaError.REQUEST_TIMED_OUT)]
    made._assigned(client, [Position("orders", 0)])
    receive(made, 5)
    assert made._queue.counts.skipped == 0
    assert made._queue.held() == 1


def test_a_revoked_partition_is_committed_and_a_lost_one_is_not() -> None:
    made, client = consumer()
    receive(made, 0)
    receive(made, 7, place=OTHER)
    handle(made, 2)
    made._revoked(client, [Position("orders", 0)])
    assert client.commits == [[(0, 1, "")]]
    assert made._queue.assigned() == [OTHER]
    made._lost(client, [Position("orders", 1)])
    made._commit()
    assert len(client.commits) == 1
    assert made._queue.assigned() == []


def test_a_partition_that_is_assigned_again_is_committed_again() -> None:
    made, client = consumer()
    for _ in range(2):
        receive(made, 0)
        handle(made)
        made._commit()
        made._lost(client, [Position("orders", 0)])
        made._queue.assign(PLACE)
    assert client.commits == [[(0, 1, "")]] * 2


@pytest.mark.parametrize(("stop", "waits"), [(None, True), ("drain", True), ("at once", False), ("halted", False)])
def test_a_revocation_waits_for_running_handlers(
    monkeypatch: pytest.MonkeyPatch, stop: str | None, waits: bool
) -> None:
    made, client = consumer(revoke_timeout_ms=60_000)
    receive(made, 0)
    record = made._queue.take()
    assert record is not None
    monkeypatch.setattr(module, "time", Clock(lambda: made.succeeded(record, 0.0)))
    if stop == "halted":
        made._halt(Halted("enough"))
    elif stop is not None:
        made.stop(drain=stop == "drain")
    made._revoked(client, [Position("orders", 0)])
    assert client.commits == [[(0, int(waits), "")]]


def test_a_revocation_waits_no_longer_than_its_limit(clock: Clock) -> None:
    made, client = consumer(revoke_timeout_ms=2_000)
    receive(made, 0)
    assert made._queue.take() is not None
    made._revoked(client, [Position("orders", 0)])
    assert sum(clock.slept) == pytest.approx(2.0, abs=2 * DRAIN_POLL_S)
    assert client.commits == [[(0, 0, "")]]


def test_the_producer_of_dead_letters_has_no_options_of_a_consumer() -> None:
    config = {**CONFIG, "auto.offset.reset": "earliest", "security.protocol": "SSL", "max.poll.interval.ms": 5}
    assert module._producer_config(config) == {"bootstrap.servers": "127.0.0.1:1", "security.protocol": "SSL"}


class Letters:
    """Stands for the dead-letter topic."""

    def __init__(self, fails: bool = False) -> None:
        self.sent: list[tuple[Any, ...]] = []
        self._fails = fails

    def send(self, *sent: Any) -> None:
        if self._fails:
            raise BufferError("the queue is full")
        self.sent.append(sent)


def test_an_exhausted_record_is_complete_when_its_dead_letter_is_acknowledged() -> None:
    made, _ = consumer(dead_letter="dead", retry=Retry(attempts=1))
    made._dead_letters = letters = Letters()  # type: ignore[assignment]  # what it needs of them
    receive(made, 0)
    record, error = made._queue.take(), ValueError("bad")
    assert record is not None
    made.failed(record, error)
    [(sent, reason, answered)] = letters.sent
    assert (sent, reason, made._queue.counts.completed) == (record, error, 0)
    answered(None)
    assert (made._queue.counts.completed, made._queue.counts.dead_letters, made._halted) == (1, 1, None)


@pytest.mark.parametrize("refused", [True, False], ids=["by the client", "by the broker"])
def test_a_dead_letter_that_cannot_be_written_halts(refused: bool) -> None:
    made, _ = consumer(dead_letter="dead", retry=Retry(attempts=1))
    made._dead_letters = letters = Letters(refused)  # type: ignore[assignment]  # what it needs of them
    receive(made, 0)
    record = made._queue.take()
    assert record is not None
    made.failed(record, ValueError("bad"))
    if not refused:
        letters.sent[0][2](KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, "denied"))
    assert str(made._halted) == f"cannot write to dead: {'the queue is full' if refused else 'denied'}"
    assert made._queue.counts.completed == 0
