"""Where records go whose attempts are used up: a topic that keeps them with the reason."""

from collections.abc import Callable
from typing import Any

from confluent_kafka import Producer

from tidemill.client.parallel.record import ParallelRecord

FLUSH_S = 30.0
REASON_CHARACTERS_MAX = 1_000
LETTER_BYTES_MAX = 1_000_000_000
"""As much as librdkafka allows: how large a record may be is for the topic to say, and its own default is less."""


class DeadLetters:
    """Writes dead letters; a record counts as buried only when the broker has it."""

    def __init__(self, config: dict[str, Any], topic: str) -> None:
        self._topic = topic
        self._producer = Producer(
            {"message.max.bytes": LETTER_BYTES_MAX} | config | {"enable.idempotence": True, "linger.ms": 5}
        )

    def bury(self, record: ParallelRecord, error: BaseException, done: Callable[[Any], None]) -> None:
        """Write a record with its origin and reason; `done` gets None or the error once the broker has answered."""
        origin = {
            "tidemill-topic": record.topic,
            "tidemill-partition": str(record.partition),
            "tidemill-offset": str(record.offset),
            "tidemill-attempts": str(record.attempt),
            "tidemill-reason": f"{type(error).__name__}: {error}"[:REASON_CHARACTERS_MAX],
        }
        # Python has names of files in its errors that are no text in UTF-8.
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
        """Let answers in."""
        self._producer.poll(0)

    def close(self) -> int:
        """Wait for the last answers; answers with how many never came."""
        return int(self._producer.flush(FLUSH_S))
