"""Floods of connections: half-open TLS handshakes, requests before the login, and a producer that reconnects."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import pytest
from tests.hostile.attacked import attacked_broker
from tests.hostile.frames import SIZE, Peer
from tests.hostile.secured import SecuredBroker, secured_broker
from tests.hostile.test_slow_uploads import open_files
from tests.support.kafka_server import batch

CONNECTIONS = 1_500
ALMOST = 65_000
"""Nearly the largest request before the login."""
QUOTA = 50_000
RECORD_BYTES = 20_000
ATTACK_S = 4.0
ATTACKERS = 8


@pytest.fixture(scope="module")
def broker() -> Iterator[SecuredBroker]:
    with secured_broker() as started:
        yield started


@pytest.mark.parametrize(
    "first_bytes", [b"", b"\x16", b"\x16\x03\x01\x02\x00\x01"], ids=["nothing", "1 byte", "a head"]
)
def test_half_open_handshakes_do_not_keep_others_out(broker: SecuredBroker, first_bytes: bytes) -> None:
    with ExitStack() as stack:
        stack.enter_context(open_files(CONNECTIONS + 512))
        stack.enter_context(broker.watched())
        for _ in range(CONNECTIONS):
            client = stack.enter_context(socket.create_connection(broker.addresses["LOGIN"], timeout=60))
            with suppress(ConnectionError):  # closed by the broker already
                client.sendall(first_bytes)
        with broker.logged_in("alice", "LOGIN") as peer:
            assert peer.ask(18, 0, {}).error_code == 0


def test_requests_before_the_login_take_little_memory(broker: SecuredBroker) -> None:
    with ExitStack() as stack:
        stack.enter_context(open_files(CONNECTIONS + 512))
        stack.enter_context(broker.watched())
        for _ in range(CONNECTIONS):
            client = stack.enter_context(socket.create_connection(broker.addresses["CLEAR"], timeout=60))
            with suppress(ConnectionError):
                client.sendall(SIZE.pack(ALMOST) + bytes(ALMOST - 100))
        with broker.logged_in("alice") as peer:
            assert peer.ask(18, 0, {}).error_code == 0


def test_a_producer_that_reconnects_keeps_to_its_quota() -> None:
    with attacked_broker({"quota.window.num": "2"}) as broker:
        with Peer(broker.address) as peer:
            entity = [{"entity_type": "client-id", "entity_name": "test"}]
            quota = [{"key": "producer_byte_rate", "value": float(QUOTA), "remove": False}]
            answer = peer.ask(49, 0, {"entries": [{"entity": entity, "ops": quota}], "validate_only": False})
            assert not answer.entries[0].error_code
        records = batch(bytes(RECORD_BYTES))
        fields = {
            "transactional_id": None,
            "acks": 1,
            "timeout": 1000,
            "topic_data": [{"name": "honest", "partition_data": [{"index": 0, "records": records}]}],
        }
        stored = [0] * ATTACKERS
        end = time.monotonic() + ATTACK_S

        def attack(number: int) -> None:
            while (left_s := end - time.monotonic()) > 0:
                with suppress(OSError), Peer(broker.address, left_s) as peer:
                    peer.ask(0, 3, fields)
                    stored[number] += RECORD_BYTES

        attackers = [threading.Thread(target=attack, args=(number,)) for number in range(ATTACKERS)]
        for each in attackers:
            each.start()
        for each in attackers:
            each.join()
        most = QUOTA * (ATTACK_S + 1) + ATTACKERS * RECORD_BYTES * 1.1
        assert 0 < sum(stored) <= most
