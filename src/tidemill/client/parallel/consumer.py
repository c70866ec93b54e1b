"""The parallel consumer: one thread polls and commits, many workers handle records.

No offset is committed past a record that is not complete.

The thread that calls `run` owns the Kafka client. It keeps polling, however slow the handlers are, so that the group
never removes it. It puts records into the work queue, pauses partitions when too many records wait, releases retries
and commits. Workers take records from the queue and report results.

A revoked partition is released in order. The queue hands out no more of its records, running handlers may finish within
a limit, the result is committed and the rest is dropped. A lost partition is only dropped, because its new owner has
already started and a commit here would come from a zombie.
"""

import inspect
import random
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any, Self

import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as Position

from tidemill.client.parallel.dead_letters import DeadLetters
from tidemill.client.parallel.metadata import METADATA_BYTES_MAX, decode
from tidemill.client.parallel.options import Halted, InvalidOption, ParallelOptions, Retry, TooManyErrors, ordering_of
from tidemill.client.parallel.processes import ProcessWorkers
from tidemill.client.parallel.record import ParallelRecord
from tidemill.client.parallel.stats import Stats, collector_of
from tidemill.client.parallel.work_queue import WorkQueue
from tidemill.client.parallel.workers import Handler, TaskWorkers, ThreadWorkers, Workers
from tidemill.model.topics import TopicPartition

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

POLL_S = 0.1
POLL_BATCH = 1_000
DRAIN_POLL_S = 0.02
COMMITTED_S = 30.0
MISSING_S = 2.0
"""How long after the start the topics are checked, where the client itself does not report a missing one."""
METADATA_S = 5.0
# Partitions are resumed when the records in flight fall below this share of max_in_flight.
RESUME_SHARE = 0.5

log = structlog.get_logger("tidemill.parallel")


class ParallelConsumer:
    """Handles the records of topics with many workers, in the order of their keys, and loses none.

        consumer = ParallelConsumer({"bootstrap.servers": "127.0.0.1:9092", "group.id": "mailer"}, ["orders"])
        consumer.run(lambda record: print(record.key, record.value))

    `config` is confluent-kafka's; it works with any Kafka broker. `run(handler)` returns after `stop()`, a signal or
    `max_records`, or raises `Halted`. A handler that is a coroutine function runs as tasks of one event loop.

    - `ordering`: which records are handled in order: those of a "key", of a "partition", or none ("unordered").
    - `workers`, `executor`: the number of workers, each a "thread" or a "process".
    - `retry`: the attempts. After the last one the record goes to the topic `dead_letter`, or `on_exhausted` decides:
      "halt" or "skip". `error_threshold` failures in a row halt the consumer.
    - `commit_interval_ms`, `commit_every`: when offsets are committed. Each commit stores the records that are complete
      beyond a gap, in up to `metadata_bytes_max`. `tracking` finds gaps per "partition", or over all as a "sequence".
    - `max_in_flight`: the most records in memory. `revoke_timeout_ms`: how long handlers may continue with a
      partition that is revoked. `registry`: a registry of prometheus_client for metrics.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        topics: Sequence[str],
        *,
        ordering: str = "key",
        workers: int = 100,
        executor: str = "thread",
        tracking: str = "partition",
        retry: Retry | None = None,
        dead_letter: str | None = None,
        on_exhausted: str = "halt",
        commit_interval_ms: int = 5_000,
        commit_every: int = 1_000,
        error_threshold: int = 100,
        max_in_flight: int = 10_000,
        revoke_timeout_ms: int = 10_000,
        metadata_bytes_max: int = METADATA_BYTES_MAX,
        max_records: int | None = None,
        registry: "CollectorRegistry | None" = None,
    ) -> None:
        self._options = ParallelOptions(
            config=dict(config),
            topics=topics,
            ordering=ordering_of(ordering),
            workers=workers,
            executor=executor,
            tracking=tracking,
            retry=retry or Retry(),
            dead_letter=dead_letter,
            on_exhausted=on_exhausted,
            commit_interval_ms=commit_interval_ms,
            commit_every=commit_every,
            error_threshold=error_threshold,
            max_in_flight=max_in_flight,
            revoke_timeout_ms=revoke_timeout_ms,
            metadata_bytes_max=metadata_bytes_max,
            max_records=max_records,
        )
        self._queue = WorkQueue(self._options.ordering, tracking)
        self._client: Any = None
        self._dead_letters: DeadLetters | None = None
        self._stopping = threading.Event()
        self._drain = True
        self._halted: Halted | None = None
        self._paused = False
        self._rebalanced = False
        self._committed: dict[TopicPartition, tuple[int, str]] = {}
        self._metadata_bytes_max = metadata_bytes_max
        self._commits = 0
        self._committed_at = (0.0, 0)
        self._topics_checked_at_s: float | None = None
        self._chance = random.Random()  # noqa: S311 -- spreads retries, no security
        if registry is not None:
            collector_of(registry).add(str(config["group.id"]), self.stats)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop(drain=False)

    def run(self, handler: Handler) -> None:
        """Handle records until `stop()`, Ctrl-C or SIGTERM. Raises `Halted` when it cannot continue."""
        if not callable(handler):
            raise InvalidOption(f"the handler {handler!r} is not a function")
        if self._client is not None:
            raise InvalidOption("this ParallelConsumer has already run; create another one")
        if not structlog.is_configured():  # structlog's default is standard output, which belongs to the program
            structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
        workers = self._workers(handler)
        self._start_client()
        workers.start()
        try:
            with self._signals():
                while not self._stopping.is_set():
                    self._turn()
                self._finish()
        finally:
            self._queue.close()
            workers.stop(wait=self._drain and self._halted is None)
            self._close()
        if self._halted is not None:
            raise self._halted

    def stop(self, *, drain: bool = True) -> None:
        """End `run`. With `drain`, it ends after all received records are handled and committed."""
        self._drain = self._drain and drain
        self._stopping.set()

    def stats(self) -> Stats:
        """A snapshot of the consumer's state."""
        waiting, in_flight = self._queue.load()
        counts = self._queue.counts
        contiguous = {str(place): offset for place, (offset, _) in self._queue.commits(0).items()}
        return Stats(
            waiting=waiting,
            in_flight=in_flight,
            received=counts.received,
            completed=counts.completed,
            beyond_gap=self._queue.beyond(),
            skipped=counts.skipped,
            failures=counts.failures,
            retries=counts.retries,
            dead_letters=counts.dead_letters,
            dropped=counts.dropped,
            handler_s=counts.handler_s,
            commits=self._commits,
            committed={str(place): offset for place, (offset, _) in self._committed.items()},
            contiguous=contiguous,
            assigned=tuple(str(place) for place in self._queue.assigned()),
        )

    # Start and stop.

    def _workers(self, handler: Handler) -> Workers:
        count, in_processes = self._options.workers, self._options.executor == "process"
        if inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(getattr(handler, "__call__", None)):  # noqa: B004 -- checks for async __call__
            if in_processes:
                raise InvalidOption("executor='process' does not support async handlers; use executor='thread'")
            return TaskWorkers(self._queue, handler, count, self)
        if in_processes:
            return ProcessWorkers(self._queue, handler, count, self)
        return ThreadWorkers(self._queue, handler, count, self)

    def _start_client(self) -> None:
        config = dict(self._options.config)
        if self._options.dead_letter:
            self._dead_letters = DeadLetters(_producer_config(config), self._options.dead_letter)
        if str(config.get("group.protocol", "classic")).lower() == "consumer":
            self._topics_checked_at_s = time.monotonic() + MISSING_S
        self._client = Consumer({"auto.offset.reset": "earliest", **config, "enable.auto.commit": False})
        self._client.subscribe(
            list(self._options.topics), on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost
        )

    def _finish(self) -> None:
        while self._drain and self._halted is None and self._queue.held():
            self._turn(paused=True, timeout_s=DRAIN_POLL_S)

    def _close(self) -> None:
        if self._dead_letters is not None and (left := self._dead_letters.close()):
            log.error("dead_letters_unconfirmed", count=left)
        try:
            self._commit()
        finally:
            self._client.close()

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Ctrl-C and SIGTERM drain, and a second one stops at once. Only the main thread may handle signals."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def stop(_: int, __: FrameType | None) -> None:
            self.stop(drain=not self._stopping.is_set())

        before = {each: signal.signal(each, stop) for each in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)

    # One iteration of the polling thread.

    def _turn(self, *, paused: bool = False, timeout_s: float = POLL_S) -> None:
        self._balance(paused=paused)
        messages = self._client.consume(max(1, min(POLL_BATCH, self._left())), self._patience_s(timeout_s))
        if messages:
            self._queue.put(self._records(messages))
        self._check_topics()
        if not self._left():
            self.stop()
        self._queue.wake(_now_ms())
        if self._dead_letters is not None:
            self._dead_letters.poll()
        self._commit_when_due()

    def _left(self) -> int:
        """How many more records may be received. The client is never asked for more than `max_records`."""
        counts = self._queue.counts
        limit = self._options.max_records
        return POLL_BATCH if limit is None else max(0, limit - (counts.received - counts.skipped))

    def _patience_s(self, timeout_s: float) -> float:
        """How long a poll may wait without delaying a due retry or a due commit."""
        commit_s = self._committed_at[0] + self._options.commit_interval_ms / 1000 - time.monotonic()
        due = self._queue.next_due_ms()
        retry_s = timeout_s if due is None else (due - _now_ms()) / 1000
        return max(0.0, min(timeout_s, commit_s, retry_s))

    def _balance(self, *, paused: bool) -> None:
        """Pause fetching while too many records wait. Polling itself never stops."""
        held, limit = self._queue.held(), self._options.max_in_flight
        wanted = paused or held >= (limit * RESUME_SHARE if self._paused else limit)
        # The client keeps a partition paused while another member owns it, so pause or resume all after a rebalance.
        if wanted != self._paused or self._rebalanced:
            (self._client.pause if wanted else self._client.resume)(self._client.assignment())
            self._paused, self._rebalanced = wanted, False

    def _records(self, messages: Sequence[Any]) -> Iterator[ParallelRecord]:
        for message in messages:
            error = message.error()
            if error is None:
                headers = tuple(message.headers() or ())
                yield ParallelRecord(
                    message.topic(),
                    message.partition(),
                    message.offset(),
                    message.key(),
                    message.value(),
                    headers,
                    message.timestamp()[1],
                )
            elif error.fatal() or (
                error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART and not self._topics_may_be_created()
            ):
                self._halt(Halted(f"cannot read {', '.join(self._options.topics)}: {error.str()}"))
            else:
                place = {"topic": message.topic(), "partition": message.partition(), "offset": message.offset()}
                log.warning("read_failed", **place, error=error.str())

    def _topics_may_be_created(self) -> bool:
        """Whether the config allows topics that are created at their first use."""
        return str(self._options.config.get("allow.auto.create.topics", "false")).lower() == "true"

    def _check_topics(self) -> None:
        """Check that the topics exist: with the consumer protocol a missing topic is no error for the client."""
        if self._topics_checked_at_s is None or time.monotonic() < self._topics_checked_at_s:
            return
        self._topics_checked_at_s = None
        try:
            known = self._client.list_topics(timeout=METADATA_S).topics
        except KafkaException:  # no broker answers: the client reports that and retries
            self._topics_checked_at_s = time.monotonic() + MISSING_S
            return
        missing = [topic for topic in self._options.topics if not topic.startswith("^") and topic not in known]
        if missing and self._topics_may_be_created():
            log.warning("topics_missing", topics=missing)
        elif missing:
            self._halt(Halted(f"cannot read {', '.join(missing)}: there is no such topic"))

    # Commits.

    def _commit_when_due(self) -> None:
        at_s, completed = self._committed_at
        counts, now_s = self._queue.counts, time.monotonic()
        late = now_s - at_s >= self._options.commit_interval_ms / 1000
        if late or counts.completed + counts.skipped - completed >= self._options.commit_every:
            self._committed_at = (now_s, counts.completed + counts.skipped)
            self._commit()

    def _commit(self, only: Sequence[TopicPartition] | None = None) -> None:
        found = self._queue.commits(self._metadata_bytes_max, only)
        changed = {place: each for place, each in found.items() if self._committed.get(place) != each}
        if not changed:
            return
        positions = [Position(*place, offset, metadata) for place, (offset, metadata) in changed.items()]
        try:
            answers = self._client.commit(offsets=positions, asynchronous=False)
        except KafkaException as error:
            self._commit_refused(error.args[0], only)
            return
        self._commits += 1
        self._committed |= {TopicPartition(*place): changed[TopicPartition(*place)] for place in _taken(answers)}
        for refusal in {each.error.code(): each.error for each in answers if each.error}.values():
            self._commit_refused(refusal, only)

    def _commit_refused(self, error: KafkaError, only: Sequence[TopicPartition] | None) -> None:
        """Log the error. The next commit has the same offsets. A fenced member loses its partitions then."""
        log.warning("commit_failed", error=error.str())
        if error.code() == KafkaError.OFFSET_METADATA_TOO_LARGE and self._metadata_bytes_max:
            smaller = self._metadata_bytes_max > METADATA_BYTES_MAX
            self._metadata_bytes_max = METADATA_BYTES_MAX if smaller else 0
            self._commit(only)

    # Rebalance callbacks, called during a poll.

    def _assigned(self, client: Any, positions: list[Any]) -> None:
        try:
            known = client.committed(positions, COMMITTED_S)
        except KafkaException as error:
            # Records that were complete beyond a gap are handled again.
            log.warning("committed_offsets_unavailable", error=error.args[0].str())
            known = []
        runs = {(each.topic, each.partition): decode(each.offset, each.metadata) for each in known if each.offset >= 0}
        for each in positions:
            self._queue.assign(TopicPartition(each.topic, each.partition), runs.get((each.topic, each.partition), ()))
        self._rebalanced = True
        log.info("partitions_assigned", partitions=[f"{each.topic}-{each.partition}" for each in positions])

    def _revoked(self, _: Any, positions: list[Any]) -> None:
        places = [TopicPartition(each.topic, each.partition) for each in positions]
        deadline = time.monotonic() + self._options.revoke_timeout_ms / 1000
        # Only a drain waits: after a halt the record that caused it never completes, and a forced stop must be quick.
        while self._drain and self._halted is None and self._running(places) and time.monotonic() < deadline:
            if self._dead_letters is not None:
                self._dead_letters.poll()
            time.sleep(DRAIN_POLL_S)
        self._commit(places)
        self._forget(places)

    def _running(self, places: Sequence[TopicPartition]) -> int:
        return sum([self._queue.stop_waiting(place) for place in places])

    def _lost(self, _: Any, positions: list[Any]) -> None:
        self._forget([TopicPartition(each.topic, each.partition) for each in positions])

    def _forget(self, places: Sequence[TopicPartition]) -> None:
        for place in places:
            self._queue.unassign(place)
            self._committed.pop(place, None)
        log.info("partitions_released", partitions=[str(place) for place in places])

    # Results of records, called by workers.

    def succeeded(self, record: ParallelRecord, handler_s: float) -> None:
        """See Outcomes."""
        self._queue.finished(record, handler_s)

    def failed(self, record: ParallelRecord, error: BaseException) -> None:
        """See Outcomes."""
        if isinstance(error, Halted):
            self._halt(error)
            return
        if not isinstance(error, Exception):
            self._halt(Halted(f"the handler raised {type(error).__name__}: {error}"), error)
            return
        in_row = self._queue.failed()
        if in_row >= self._options.error_threshold:
            self._halt(TooManyErrors(f"{in_row} handlers failed in a row, the last with {error!r}"), error)
        elif record.attempt < self._options.retry.attempts:
            wait_ms = self._options.retry.wait_ms(record.attempt, self._chance.random())
            self._queue.retry(record, _now_ms() + wait_ms)
        else:
            self._exhausted(record, error)

    def _exhausted(self, record: ParallelRecord, error: Exception) -> None:
        where = f"{record.topic}-{record.partition} offset {record.offset}"
        if self._dead_letters is not None:
            self._send_dead_letter(self._dead_letters, record, error)
        elif self._options.on_exhausted == "skip":
            log.error("record_skipped", record=where, attempts=record.attempt, error=repr(error))
            self._queue.finished(record, well=False)
        else:
            self._halt(Halted(f"{where} failed {record.attempt} times, the last with {error!r}"), error)

    def _send_dead_letter(self, dead_letters: DeadLetters, record: ParallelRecord, error: Exception) -> None:
        def answered(failed: Any) -> None:
            if failed is not None:
                self._halt(Halted(f"cannot write to {self._options.dead_letter}: {failed.str()}"))
                return
            self._queue.counts.dead_letters += 1
            self._queue.finished(record, well=False)

        try:
            dead_letters.send(record, error, answered)
        except Exception as refused:  # noqa: BLE001 -- a record that the producer rejects must not be lost
            self._halt(Halted(f"cannot write to {self._options.dead_letter}: {refused}"), refused)

    def _halt(self, reason: Halted, cause: BaseException | None = None) -> None:
        if self._halted is None:
            reason.__cause__ = cause
            self._halted = reason
            log.error("consumer_halted", reason=str(reason))
        self._stopping.set()


def _taken(answers: Sequence[Any]) -> list[tuple[str, int]]:
    return [(each.topic, each.partition) for each in answers if not each.error]


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


_CONSUMER_ONLY = (
    "group.",
    "auto.offset",
    "fetch.",
    "session.",
    "heartbeat.",
    "max.poll",
    "partition.assignment",
    "queued.",
    "isolation.",
)


def _producer_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """The consumer's config without the options that only a consumer has."""
    return {name: value for name, value in config.items() if not name.startswith(_CONSUMER_ONLY)}
