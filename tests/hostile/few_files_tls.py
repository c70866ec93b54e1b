"""A broker with TLS that may open 256 files, while clients begin handshakes and never end them.

Files that the attack takes would be missing to the log: topics must still be created and written to. This is a process
of its own, because it has many sockets itself.
"""

import resource
import socket
import time
from contextlib import ExitStack, suppress

from tests.hostile.attacked import WAIT_S
from tests.hostile.frames import Peer
from tests.hostile.secured import SecuredBroker, secured_broker
from tests.support.guarded_server import codes
from tests.support.kafka_server import batch

from tidemill.security.tls import HANDSHAKE_TIMEOUT_S

FILES, CONNECTIONS = 256, 64
HALF_OPEN = 400
HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
TOPICS = 5


def main() -> None:
    with secured_broker({"max.connections": str(CONNECTIONS)}) as broker, ExitStack() as stack:
        resource.prlimit(broker.process.pid, resource.RLIMIT_NOFILE, (FILES, FILES))
        writer = stack.enter_context(broker.logged_in("admin", "LOGIN"))
        for _ in range(HALF_OPEN):
            with suppress(OSError):
                connection = stack.enter_context(socket.create_connection(broker.addresses["LOGIN"], WAIT_S))
                connection.sendall(HELLO)
        for number in range(TOPICS):
            write(writer, f"topic{number}")
        log_in(broker)
        assert '"level": "error"' not in broker.log_text(), broker.log_text()[-3_000:]


def write(peer: Peer, topic: str) -> None:
    """Create a topic, and write to it durably."""
    created = peer.ask(
        19, 5, {"topics": [{"name": topic, "num_partitions": 1, "replication_factor": 1}], "timeout": 5_000}
    )
    assert not codes(created), created
    topics = [{"name": topic, "partition_data": [{"index": 0, "records": batch(b"x")}]}]
    written = peer.ask(0, 9, {"acks": -1, "timeout": 5_000, "topic_data": topics})
    assert not codes(written), written


def log_in(broker: SecuredBroker) -> None:
    """A new client is served before the handshakes are closed that take too long."""
    deadline = time.monotonic() + HANDSHAKE_TIMEOUT_S * 0.8
    while True:
        try:
            broker.logged_in("alice", "LOGIN").close()
        except OSError:
            assert time.monotonic() < deadline, "a new client is not served"
        else:
            return


if __name__ == "__main__":
    main()
