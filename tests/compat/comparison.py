"""Sends the same requests to Apache Kafka and to Tidemill, and compares the responses.

A question is a request in plain values, or a function that makes it from earlier responses (ids, epochs). Two responses
are equal when they differ only in what differs between any two brokers: ids, addresses, times, offsets, the order of
lists, and the wording of messages.
"""

import dataclasses
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from datetime import timedelta
from enum import Enum
from typing import Any, NamedTuple

from benchmarks.peers import Peer

from tidemill.client.kafka.apis import ClientApi
from tidemill.client.kafka.connection import BlockingConnection
from tidemill.client.kafka.errors import ConnectionLost
from tidemill.client.kafka.options import ClientOptions
from tidemill.client.kafka.protocol import plain
from tidemill.client.kafka.topology import BrokerEndpoint
from tidemill.model.errors import ProtocolViolation

TIMEOUT_MS = 15_000
BUSY = frozenset({14, 15, 16, 51})
"""Errors of a coordinator that has not started yet, or that still ends the last transaction."""
TRIES, PAUSE_S = 100, 0.1
OWN = frozenset(
    (
        "base_offset",
        "batch_index_error_message",
        "broker_id",
        "brokers",
        "cluster_id",
        "configs",
        "controller_id",
        "error_message",
        "host",
        "isr_nodes",
        "last_timestamp",
        "leader",
        "leader_id",
        "log_append_time",
        "log_append_time_ms",
        "log_dir",
        "log_start_offset",
        "member_id",
        "node_id",
        "port",
        "producer_id",
        "rack",
        "records",
        "replica_nodes",
        "session_id",
        "throttle_time",
        "throttle_time_ms",
        "timestamp",
        "topic_id",
        "transaction_start_time",
    )
)
"""Fields that are specific to one broker. `configs` are compared by meaning (see the questions on settings)."""

State = dict[str, Any]
Fields = Mapping[str, Any]


class Question(NamedTuple):
    """A request, and the parts of its response that are kept."""

    name: str
    key: int
    version: int
    fields: Fields | Callable[[State], Fields]
    learn: Callable[[State, Any], None] | None = None


class Side:
    """One of the two brokers."""

    def __init__(self, peer: Peer) -> None:
        host, port = peer.address.split(":")
        self._address = BrokerEndpoint(host, int(port))
        self._connection = self._connect()
        self._state: State = {}

    def close(self) -> None:
        self._connection.close()

    def ask(self, question: Question) -> Any:
        """The response as plain values. A connection that the broker closes is a response, too."""
        fields = question.fields(self._state) if callable(question.fields) else question.fields
        if self._connection.closed:
            self._connection = self._connect()
        try:
            api = ClientApi(question.key, question.version, question.version)
            answer = self._connection.call(plain(api, fields)).message()
        except (ConnectionLost, ProtocolViolation):
            self._connection.close()
            return "the connection ends"
        if question.learn is not None:
            question.learn(self._state, answer)
        return simple(answer)

    def _connect(self) -> BlockingConnection:
        return BlockingConnection(
            self._address, ClientOptions(bootstrap=(self._address,), request_timeout_ms=TIMEOUT_MS)
        )


@contextmanager
def sides(peers: Iterable[Peer]) -> Iterator[list[Side]]:
    """Connect to both brokers."""
    found = [Side(peer) for peer in peers]
    try:
        yield found
    finally:
        for side in found:
            with closing(side):
                pass


def differing(both: list[Side], questions: Iterable[Question]) -> dict[str, tuple[Any, Any]]:
    """The questions with different responses, and both responses."""
    found = {}
    for question in questions:
        first, second = (_settled(side, question) for side in both)
        if first != second:
            found[question.name] = first, second
    return found


def _settled(side: Side, question: Question) -> Any:
    """The response after the coordinator has started and has finished its earlier work."""
    for _ in range(TRIES):
        answer = side.ask(question)
        if not BUSY & set(_codes(answer)):
            break
        time.sleep(PAUSE_S)
    return answer


def _codes(answer: Any) -> Iterator[int]:
    if isinstance(answer, dict):
        for name, value in answer.items():
            if name.endswith("error_code"):
                yield value
            yield from _codes(value)
    elif isinstance(answer, list):
        for each in answer:
            yield from _codes(each)


def simple(value: Any) -> Any:
    """kio's object as dictionaries, with sorted lists."""
    if dataclasses.is_dataclass(value):
        names = [field.name for field in dataclasses.fields(value) if field.name not in OWN]
        return {name: simple(getattr(value, name)) for name in names}
    if isinstance(value, tuple | list):
        return sorted((simple(each) for each in value), key=repr)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, timedelta):
        return value.total_seconds()
    return bytes(value) if isinstance(value, bytes | bytearray | memoryview) else value
