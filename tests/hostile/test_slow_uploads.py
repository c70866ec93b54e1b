"""Clients that announce much and send little: they take neither memory nor places that honest clients need."""

import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from struct import pack

import pytest
from tests.hostile.attacked import attacked_broker

ANNOUNCED_BYTES = 90 << 20


@contextmanager
def open_files(count: int) -> Iterator[None]:
    """Room for so many sockets in this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < count:
        pytest.skip(f"this system allows {hard} open files, the attack needs {count}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, count), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize(
    ("connections", "settings", "sent"),
    [(2_047, {}, 1), (2_047, {"max.connections": "1000"}, 1), (700, {}, 250_000)],
    ids=["as many as fit", "more than fit", "with many bytes each"],
)
def test_connections_that_send_requests_by_the_byte_cost_honest_clients_nothing(
    connections: int, settings: dict[str, str], sent: int
) -> None:
    with ExitStack() as stack:
        stack.enter_context(open_files(connections + 512))
        broker = stack.enter_context(attacked_broker(settings))
        with broker.watched():
            for _ in range(connections):
                client = stack.enter_context(socket.create_connection(broker.address, timeout=60))
                with suppress(ConnectionError):  # closed by the broker already
                    client.sendall(pack(">i", ANNOUNCED_BYTES) + bytes(sent))
