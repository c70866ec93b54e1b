"""Writes records whose attempts are exhausted to the dead-letter topic, with the reason."""

from collections.abc import Callable
from typing import Any

from confluent_kafka import Producer

from tidemill.client.parallel.record import ParallelRecord

FLUSH_S = 30.0
REASON_CHARACTERS_MAX = 1_000
RECORD_BYTES_MAX = 1_000_000_000
"""The most that librdkafka allows. The topic limits the size of a record, and librdkafka's own default is lower."""


class DeadLetters:
    """Writes dead letters. A record counts as written only when the broker has acknowledged it."""

    def __init__(self, config: dict[str, Any], topic: str) -> None:
        self._topic = topic
        self._producer = Producer(
            {"message.max.bytes": RECORD_BYTES_MAX} | config | {"enable.idempotence": True, "linger.ms": 5}
        )

    def send(self, record: ParallelRecord, error: BaseException, done: Callable[[Any], None]) -> None:
        """Write a record with its origin and reason. `done` gets None or the error when the broker has answered."""
        origin = {
            "tidemill-topic": record.topic,
            "tidemill-partition": str(record.partition),
            "tidemill-offset": str(record.offset),
            "tidemill-attempts": str(record.attempt),
            "tidemill-reason": f"{type(error).__name__}: {error}"[:REASON_CHARACTERS_MAX],
        }
        # Error texts may contain file names that are not valid UTF-8.
        written = ((name, text.encode(errors="backslashreplace")) for name, text in origin.items())
        headers = [*record.headers, *written]
        self._producer.produce(
            self._topic,
            record.value,
            key=record.key,
            headers=headers,
            timestamp=max(record.timestamp, 0),
            on_delivery=lambda failed, _: done(failed),
        )

    def poll(self) -> None:
        """Process the responses that have arrived."""
        self._producer.poll(0)

    def close(self) -> int:
        """Wait for the last responses. Returns how many are missing."""
        return int(self._producer.flush(FLUSH_S))
