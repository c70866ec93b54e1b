"""Read, process, write: two copiers, one per client family, copy a topic in transactions while faults happen.

Each writes to a topic of its own and commits its read offsets in the same transaction. Some transactions are aborted on
purpose. Their values are marked, so that a reader that sees one detects the error. After any error a copier continues
from the committed offsets of its group. So the copy must have every record of the source once, in order.

Each copier is a process that prints a line for every transaction. If it is silent for too long, it is killed and
restarted. The reason: calls of librdkafka may wait forever for a coordinator from before a restart of all brokers.

    python -m tests.chaos.copier FAMILY BOOTSTRAP SOURCE
"""

import asyncio
import logging
import subprocess
import sys
import threading
import time
from contextlib import suppress

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError
from aiokafka.structs import TopicPartition as AioPartition
from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from tests.chaos.history import ABORTED

AT_A_TIME = 200
ABORT_EVERY = 7
CALL_S = 20.0
SILENCE_S = 25.0
PAUSE_S = 0.3
SETTINGS = {"socket.timeout.ms": 10_000, "reconnect.backoff.max.ms": 1000, "log_level": 0}
TRANSACTION, TURN = "transaction", "turn"


class Copier:
    """One copier from the view of the run: a process that is restarted when it ends or is silent."""

    def __init__(self, family: str, bootstrap: str, source: str) -> None:
        self.transactions = 0
        self.begun_anew = -1
        self._command = [sys.executable, "-m", "tests.chaos.copier", family, bootstrap, source]
        self._heard = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def start(self) -> None:
        """Start copying."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the process."""
        self._over.set()
        self._thread.join(60)
        assert not self._thread.is_alive(), "a copier does not end"

    def _watch(self) -> None:
        while not self._over.is_set():
            self.begun_anew += 1
            with subprocess.Popen(self._command, stdout=subprocess.PIPE, text=True) as process:
                self._heard = time.monotonic()
                threading.Thread(target=self._listen, args=(process,), daemon=True).start()
                while process.poll() is None and not self._over.is_set():
                    self._over.wait(PAUSE_S)
                    if time.monotonic() - self._heard > SILENCE_S:
                        break
                process.kill()

    def _listen(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self._heard = time.monotonic()
            self.transactions += line.strip() == TRANSACTION


class Copiers:
    """The two copiers."""

    def __init__(self, bootstrap: str, source: str, partitions: int) -> None:
        self.targets = {family: copies_of(source, family) for family in ("librdkafka", "aiokafka")}
        self._bootstrap = bootstrap
        self._source = source
        self._partitions = partitions
        self._copiers = [Copier(family, bootstrap, source) for family in self.targets]

    @property
    def transactions(self) -> int:
        """The number of transactions that have ended, including aborted ones."""
        return sum(each.transactions for each in self._copiers)

    @property
    def begun_anew(self) -> int:
        """How often a copier had to restart."""
        return sum(each.begun_anew for each in self._copiers)

    def start(self) -> None:
        """Start copying."""
        for each in self._copiers:
            each.start()

    def finish(self, within_s: float = 90.0) -> None:
        """Wait until both groups have committed the end of the source."""
        end = time.monotonic() + within_s
        while time.monotonic() < end and not all(map(self._at_the_end, self.targets)):
            time.sleep(0.5)

    def stop(self) -> None:
        """Stop the copiers."""
        for each in self._copiers:
            each.stop()

    def _at_the_end(self, family: str) -> bool:
        consumer = Consumer({"bootstrap.servers": self._bootstrap, "group.id": _group(family), **SETTINGS})
        try:
            parts = [TopicPartition(self._source, index) for index in range(self._partitions)]
            committed = consumer.committed(parts, timeout=CALL_S)
            ends = [consumer.get_watermark_offsets(part, timeout=CALL_S)[1] for part in parts]
            return all(part.offset >= last for part, last in zip(committed, ends, strict=True) if last)
        except KafkaException:
            return False
        finally:
            consumer.close()


class Abort:
    """Chooses the transactions that are aborted on purpose."""

    def __init__(self) -> None:
        self._count = 0

    def next(self) -> bool:
        """Whether to abort the next one."""
        self._count += 1
        return self._count % ABORT_EVERY == 0


class LibrdkafkaCopier:
    """Copies with confluent-kafka until an error."""

    def __init__(self, bootstrap: str, source: str) -> None:
        group = {"group.id": _group("librdkafka"), "auto.offset.reset": "earliest", "enable.auto.commit": False}
        shared = {"bootstrap.servers": bootstrap, **SETTINGS}
        self._source = source
        self._target = copies_of(source, "librdkafka")
        self._abort = Abort()
        self._consumer = Consumer({**shared, **group, "isolation.level": "read_committed", "session.timeout.ms": 6000})
        self._producer = Producer({**shared, "transactional.id": "librdkafka", "transaction.timeout.ms": 10_000})

    def run(self) -> None:
        """Copy until an error."""
        self._producer.init_transactions(CALL_S)
        self._consumer.subscribe([self._source])
        while True:
            found = [each for each in self._consumer.consume(AT_A_TIME, PAUSE_S) if each.error() is None]
            if found:
                self._transaction(found)
            _tell(TRANSACTION if found else TURN)

    def _transaction(self, found: list[Message]) -> None:
        aborts = self._abort.next()
        first: dict[int, int] = {}
        after: dict[int, int] = {}
        self._producer.begin_transaction()
        for message in found:
            index, offset = message.partition() or 0, message.offset() or 0
            first.setdefault(index, offset)
            after[index] = offset + 1
            value = message.value() or b""
            self._producer.produce(self._target, (ABORTED if aborts else b"") + value, partition=index)
        if aborts:
            self._producer.flush(CALL_S)
            self._producer.abort_transaction(CALL_S)
            for index, offset in first.items():
                self._consumer.seek(TopicPartition(self._source, index, offset))
            return
        offsets = [TopicPartition(self._source, index, offset) for index, offset in after.items()]
        self._producer.send_offsets_to_transaction(offsets, self._consumer.consumer_group_metadata(), CALL_S)
        self._producer.commit_transaction(CALL_S)


class AiokafkaCopier:
    """Copies with aiokafka until an error."""

    def __init__(self, bootstrap: str, source: str) -> None:
        self._target = copies_of(source, "aiokafka")
        self._abort = Abort()
        self._consumer = AIOKafkaConsumer(
            source,
            bootstrap_servers=bootstrap,
            group_id=_group("aiokafka"),
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed",
            session_timeout_ms=6000,
            heartbeat_interval_ms=1000,
            metadata_max_age_ms=2000,
            request_timeout_ms=10_000,
        )
        self._producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            transactional_id="aiokafka",
            transaction_timeout_ms=10_000,
            metadata_max_age_ms=2000,
            request_timeout_ms=10_000,
        )

    async def run(self) -> None:
        """Copy until an error."""
        await self._producer.start()
        await self._consumer.start()
        while True:
            found = await self._consumer.getmany(timeout_ms=int(PAUSE_S * 1000), max_records=AT_A_TIME)
            if found:
                await self._transaction(found)
            _tell(TRANSACTION if found else TURN)

    async def _transaction(self, found: dict[AioPartition, list[object]]) -> None:
        aborts = self._abort.next()
        sent: list[asyncio.Future[object]] = []
        await self._producer.begin_transaction()
        for part, messages in found.items():
            for message in messages:
                value = (ABORTED if aborts else b"") + message.value  # type: ignore[attr-defined]
                sent.append(await self._producer.send(self._target, value, partition=part.partition))
        await asyncio.gather(*sent)
        if aborts:
            await self._producer.abort_transaction()
            for part, messages in found.items():
                self._consumer.seek(part, messages[0].offset)  # type: ignore[attr-defined]
            return
        after = {part: messages[-1].offset + 1 for part, messages in found.items()}  # type: ignore[attr-defined]
        await self._producer.send_offsets_to_transaction(after, _group("aiokafka"))
        await self._producer.commit_transaction()


def copies_of(source: str, family: str) -> str:
    """The topic that a family's copier writes to."""
    return f"{source}-copied-by-{family}"


def _group(family: str) -> str:
    return f"copier-{family}"


def _tell(what: str) -> None:
    print(what, flush=True)


async def _aiokafka(bootstrap: str, source: str) -> None:
    await AiokafkaCopier(bootstrap, source).run()


def main(family: str, bootstrap: str, source: str) -> None:
    """Copy until an error; the parent process restarts this one."""
    logging.disable(logging.CRITICAL)
    # aiokafka asserts that a failed transaction is not used again.
    with suppress(KafkaException, KafkaError, TimeoutError, AssertionError):
        if family == "librdkafka":
            LibrdkafkaCopier(bootstrap, source).run()
        else:
            asyncio.run(_aiokafka(bootstrap, source))


if __name__ == "__main__":
    main(*sys.argv[1:4])
