"""What the parallel consumer decides without a broker: what a failure leads to, and how it stops."""

from contextlib import nullcontext
from typing import Any

import pytest
from confluent_kafka import KafkaError
from prometheus_client import CollectorRegistry

from tidemill.client.parallel.consumer import ParallelConsumer
from tidemill.client.parallel.options import Halted, Retry, TooManyErrors
from tidemill.client.parallel.record import ParallelRecord
from tidemill.model.topics import TopicPartition

CONFIG = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g"}
PLACE = TopicPartition("orders", 0)


def consumer(**options: Any) -> ParallelConsumer:
    made = ParallelConsumer(CONFIG, ["orders"], **options)
    made._queue.assign(PLACE)
    return made


def taken(made: ParallelConsumer, offset: int = 0) -> ParallelRecord:
    made._queue.put([ParallelRecord("orders", 0, offset, None, b"", (), 0)])
    record = made._queue.take()
    assert record is not None
    return record


def test_only_a_stop_with_drain_drains() -> None:
    made = consumer()
    made.stop()
    assert (made._drain, made._stopping.is_set()) == (True, True)
    made.stop(drain=False)
    made.stop()
    assert not made._drain, "a later stop does not take an earlier one back"


def test_a_failed_record_is_retried_until_its_attempts_are_used() -> None:
    made = consumer(retry=Retry(attempts=2, backoff_ms=0))
    record, error = taken(made), ValueError("bad")
    made.failed(record, error)
    assert (made._halted, made._queue.counts.retries) == (None, 1)
    made.failed(record._replace(attempt=2), error)
    assert "orders-0 offset 0 failed 2 times" in str(made._halted)
    assert made._halted is not None
    assert made._halted.__cause__ is error
    assert made._stopping.is_set()


def test_a_failed_record_is_due_again_after_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemill.client.parallel.consumer._now_ms", lambda: 1_000)
    made = consumer(retry=Retry(attempts=2, backoff_ms=300, jitter=0.0))
    made.failed(taken(made), ValueError("bad"))
    assert made._queue.next_due_ms() == 1_300


def test_the_first_reason_to_halt_stays() -> None:
    made = consumer(retry=Retry(attempts=1))
    first, second = ValueError("first"), ValueError("second")
    for offset, error in enumerate((first, second)):
        made.failed(taken(made, offset), error)
    assert made._halted is not None
    assert made._halted.__cause__ is first


def test_so_many_failures_in_a_row_halt() -> None:
    made = consumer(error_threshold=2, on_exhausted="skip", retry=Retry(attempts=1))
    made.failed(taken(made, 0), ValueError("bad"))
    made.succeeded(taken(made, 1), 0.0)
    made.failed(taken(made, 2), ValueError("bad"))
    assert (made._halted, made._queue.counts.completed) == (None, 3)
    made.failed(taken(made, 3), ValueError("bad"))
    assert isinstance(made._halted, TooManyErrors)
    assert made._queue.counts.completed == 3


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(1), Halted("enough")])
def test_an_error_that_is_not_of_the_record_halts_at_once(error: BaseException) -> None:
    made = consumer()
    made.failed(taken(made), error)
    assert made._halted is error or (made._halted is not None and made._halted.__cause__ is error)
    assert made._queue.counts.failures == 0


@pytest.mark.parametrize(("limit", "left"), [(None, 3), (5, 2), (3, 0), (2, 0)])
def test_no_more_than_max_records_are_received(limit: int | None, left: int) -> None:
    made = consumer(max_records=limit)
    made._queue.put([ParallelRecord("orders", 0, offset, None, b"", (), 0) for offset in range(3)])
    assert made._left() == (left if limit else consumer()._left())


class Failed:
    """A message of the client that is an error."""

    def __init__(self, code: int, *, fatal: bool = False) -> None:
        self._error = KafkaError(code, "the reason", fatal)

    def error(self) -> KafkaError:
        return self._error

    def topic(self) -> str:
        return "orders"

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return 7


@pytest.mark.parametrize(
    ("message", "creates", "halts"),
    [
        (Failed(KafkaError.UNKNOWN_TOPIC_OR_PART), "false", True),
        (Failed(KafkaError.UNKNOWN_TOPIC_OR_PART), "True", False),
        (Failed(KafkaError._ALL_BROKERS_DOWN), "false", False),
        (Failed(KafkaError._FATAL, fatal=True), "true", True),
    ],
)
def test_an_error_of_the_client_halts_if_a_retry_cannot_help(message: Failed, creates: str, halts: bool) -> None:
    made = ParallelConsumer({**CONFIG, "allow.auto.create.topics": creates}, ["orders"])
    assert list(made._records([message])) == []
    assert (made._halted is not None) is halts
    assert not halts or str(made._halted) == "cannot read orders: the reason"


class Stopped:
    """Workers that only record how they were stopped."""

    def __init__(self) -> None:
        self.waits: list[bool] = []

    def start(self) -> None:
        pass

    def stop(self, *, wait: bool) -> None:
        self.waits.append(wait)


@pytest.mark.parametrize(("drain", "halts", "waits"), [(True, False, True), (False, False, False), (True, True, False)])
def test_run_waits_for_its_handlers_only_when_it_drains(
    monkeypatch: pytest.MonkeyPatch, drain: bool, halts: bool, waits: bool
) -> None:
    made, workers = consumer(), Stopped()
    monkeypatch.setattr(made, "_workers", lambda _: workers)
    for name in ("_start_client", "_close"):
        monkeypatch.setattr(made, name, lambda: None)
    made.stop(drain=drain)
    if halts:
        made._halt(Halted("enough"))
    with pytest.raises(Halted) if halts else nullcontext():
        made.run(print)
    assert workers.waits == [waits]


def test_a_registry_has_the_metrics_of_the_consumer() -> None:
    registry = CollectorRegistry()
    made = consumer(registry=registry)
    made._queue.put([ParallelRecord("orders", 0, 0, None, b"", (), 0)])
    assert registry.get_sample_value("tidemill_parallel_waiting", {"group": "g"}) == 1
