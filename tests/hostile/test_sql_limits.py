"""Queries that take too much time, memory or processor: ended by the broker, without harm to other clients."""

import http.client
import json
import os
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import Producer
from tests.support.waiting import eventually

from tidemill.query_engine.confinement import is_supported
from tidemill.testing import Broker

pytestmark = pytest.mark.skipif(not is_supported(), reason="this platform has no seccomp")

WAIT_S = 90.0
TIMEOUT_MS = 4_000
MEMORY_BYTES = 256 << 20
ENDLESS = "SELECT count() FROM numbers_mt(100000000000) WHERE NOT ignore(sipHash64(number))"
STUCK = "SELECT arrayLevenshteinDistance(arrayMap(x -> x % 7, range(150000)), arrayMap(x -> x % 5, range(150000)))"
"""One call that does not look at the time limit of the engine."""


def post(broker: Broker, sql: str) -> tuple[int, Any]:
    request = urllib.request.Request(
        f"{broker.http}/api/v1/sql",
        data=json.dumps({"query": sql}).encode(),
        headers={"content-type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=WAIT_S) as answer:
            return answer.status, json.load(answer)["rows"]
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)["error"]


def pid_of(broker: Broker) -> int:
    return int(broker._runner.pid)  # type: ignore[union-attr]


def children_of(pid: int) -> list[int]:
    """Query processes of a broker."""
    found = [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return [each for each in found if is_running(each)]


def only_child_of(broker: Broker) -> int:
    """The query process that waits for the next query; processes that were killed before may take a while to end."""
    assert post(broker, "SELECT 1") == (200, [[1]])
    eventually(lambda: len(children_of(pid_of(broker))) == 1, within_s=WAIT_S)
    (child,) = children_of(pid_of(broker))
    return child


def is_running(pid: int) -> bool:
    """Whether a process is there and no zombie: its new parent may be slow to collect it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    settings = {
        "tidemill.sql.timeout.ms": str(TIMEOUT_MS),
        "tidemill.sql.max.memory.bytes": str(MEMORY_BYTES),
        "tidemill.sql.max.bytes": str(1 << 20),
    }
    with Broker(process=True, flags={"streams": "memory:", "grpc": "none"}, settings=settings) as broker:
        post(broker, "SELECT 1")
        yield broker


def test_a_call_that_ignores_the_time_limit_is_ended(broker: Broker) -> None:
    assert post(broker, STUCK) == (400, "the query took longer than tidemill.sql.timeout.ms allows")
    assert post(broker, "SELECT 1") == (200, [[1]])


@pytest.mark.parametrize("sql", [ENDLESS, STUCK], ids=["endless", "stuck"])
def test_other_queries_and_producers_go_on_while_one_is_stuck(broker: Broker, sql: str) -> None:
    stuck = threading.Thread(target=post, args=(broker, sql))
    stuck.start()
    try:
        time.sleep(0.5)
        assert stuck.is_alive()
        assert post(broker, "SELECT 1") == (200, [[1]])
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        producer.produce("next", b"x")
        assert producer.flush(WAIT_S) == 0
    finally:
        stuck.join(WAIT_S)


def test_queries_give_way_to_the_broker(broker: Broker) -> None:
    child = psutil.Process(only_child_of(broker))
    assert child.nice() > psutil.Process(pid_of(broker)).nice()


def test_memory_stays_near_its_limit_and_out_of_the_broker(broker: Broker) -> None:
    pid = pid_of(broker)
    before = resident_bytes(pid)
    peaks = [0]
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(0.02):
            for child in children_of(pid):
                try:
                    peaks.append(resident_bytes(child))
                except (OSError, IndexError):
                    continue

    idle = max((resident_bytes(each) for each in children_of(pid)), default=400 << 20)
    watching = threading.Thread(target=watch)
    watching.start()
    try:
        status, reason = post(broker, "SELECT length(arrayMap(x -> toString(x), range(30000000)))")
    finally:
        ended.set()
        watching.join()
    assert (status, "tidemill.sql." in reason) == (400, True), reason
    assert max(peaks) < idle + 2 * MEMORY_BYTES
    assert resident_bytes(pid) < before + (64 << 20)


def test_a_client_that_disconnects_ends_its_query(broker: Broker) -> None:
    """The time limit would end the query as well, but leave its process running."""
    first = only_child_of(broker)
    host, _, port = str(broker.http).removeprefix("http://").partition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=WAIT_S)
    body, headers = json.dumps({"query": ENDLESS}), {"content-type": "application/json"}
    connection.request("POST", "/api/v1/sql", body, headers=headers)
    time.sleep(0.5)
    connection.close()
    eventually(lambda: not is_running(first), within_s=WAIT_S)


@pytest.mark.parametrize("end", [Broker.stop, Broker.kill])
def test_a_broker_stops_while_a_query_is_stuck(end: Callable[[Broker], None]) -> None:
    """Its query process ends with it, also when the broker is killed."""
    with Broker(process=True, flags={"streams": "memory:", "grpc": "none"}) as broker:
        child = only_child_of(broker)
        threading.Thread(target=_ignore_errors, args=(broker,), daemon=True).start()
        time.sleep(0.5)
        end(broker)
        eventually(lambda: not is_running(child), within_s=WAIT_S)


def _ignore_errors(broker: Broker) -> None:
    try:
        post(broker, STUCK)
    except (OSError, http.client.HTTPException):
        return
