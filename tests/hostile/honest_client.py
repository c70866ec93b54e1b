"""An honest Kafka client in a process of its own: produces, fetches and requests metadata at a steady rate.

    python -m tests.hostile.honest_client HOST PORT TOPIC [CA USER MECHANISM]

With a CA it connects by TLS, and logs in with the password in the variable HONEST_PASSWORD. It writes one line of JSON
for every request, {"api": ..., "ms": ...}, until standard input is closed. Connections stay open. Every tenth round
opens a new one first, like a client that starts.
"""

import json
import os
import select
import ssl
import sys
import time
from collections.abc import Callable
from typing import NamedTuple

from tests.hostile.frames import Peer
from tests.hostile.logins import log_in

from tidemill.records.build import NewRecord, build_batch

ROUND_S = 0.01
ROUNDS_PER_CONNECTION = 10
CONNECT_TRIES = 20
CONNECT_PAUSE_S = 0.02


class Login(NamedTuple):
    """How the client logs in: the CA of the broker, the user and the mechanism."""

    authority: str
    name: str
    mechanism: str


class HonestClient:
    """Sends one record and one metadata request per round."""

    def __init__(self, address: tuple[str, int], topic: str, login: Login | None) -> None:
        self._address = address
        self._topic = topic
        self._login = login
        self._tls = None if login is None else ssl.create_default_context(cafile=login.authority)
        self._peer = Peer(address, tls=self._tls)
        self._offset = 0
        self._records = bytes(build_batch([NewRecord(b"key", b"value", timestamp=1_700_000_000_000)]))

    def round(self, number: int) -> None:
        """Send every request once."""
        if number % ROUNDS_PER_CONNECTION == 0:
            self._peer.close()
            self._timed("connect", self._connect)
        self._timed("Metadata", self._metadata)
        self._timed("Produce", self._produce)
        self._timed("Fetch", self._fetch)

    def _timed(self, api: str, work: Callable[[], None]) -> None:
        started = time.perf_counter()
        work()
        took_ms = (time.perf_counter() - started) * 1000
        print(json.dumps({"api": api, "ms": round(took_ms, 3)}), flush=True)

    def _connect(self) -> None:
        """Retry a refused connection, as every Kafka client does. The time counts."""
        for _ in range(CONNECT_TRIES):
            try:
                self._peer = Peer(self._address, tls=self._tls)
                self._peer.ask(18, 0, {})
                if self._login is not None:
                    log_in(self._peer, self._login.name, os.environ["HONEST_PASSWORD"], self._login.mechanism)
            except (ConnectionError, ssl.SSLError):
                self._peer.close()
                time.sleep(CONNECT_PAUSE_S)
            else:
                return
        raise RuntimeError(f"refused {CONNECT_TRIES} times")

    def _metadata(self) -> None:
        answer = self._peer.ask(3, 9, {"topics": [{"name": self._topic}], "allow_auto_topic_creation": False})
        if answer.topics[0].error_code:
            raise RuntimeError(f"Metadata failed: {answer.topics[0].error_code!r}")

    def _produce(self) -> None:
        partition = {"index": 0, "records": self._records}
        topics = [{"name": self._topic, "partition_data": [partition]}]
        answer = self._peer.ask(0, 9, {"acks": -1, "timeout": 30_000, "topic_data": topics})
        outcome = answer.responses[0].partition_responses[0]
        if outcome.error_code:
            raise RuntimeError(f"Produce failed: {outcome.error_code!r}")
        self._offset = outcome.base_offset

    def _fetch(self) -> None:
        partition = {"partition": 0, "fetch_offset": self._offset, "partition_max_bytes": 1000}
        topics = [{"topic": self._topic, "partitions": [partition]}]
        fields = {"replica_id": -1, "max_wait": 1000, "min_bytes": 1, "max_bytes": 1000, "topics": topics}
        answer = self._peer.ask(1, 6, fields)
        part = answer.responses[0].partitions[0]
        if part.error_code or not part.records:
            raise RuntimeError(f"Fetch failed: {part.error_code!r}")


def main() -> None:
    host, port, topic, *login = sys.argv[1:]
    client = HonestClient((host, int(port)), topic, Login(*login) if login else None)
    number = 0
    while not select.select([sys.stdin], [], [], ROUND_S)[0]:
        client.round(number)
        number += 1
    os._exit(0)


if __name__ == "__main__":
    main()
