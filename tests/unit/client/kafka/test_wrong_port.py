"""Listeners that are not Kafka brokers, recognized by their first bytes."""

import socket
import threading

import pytest

from tidemill.client.kafka.connection import BlockingConnection
from tidemill.client.kafka.errors import ConnectionLost, NotKafka
from tidemill.client.kafka.options import ClientOptions
from tidemill.client.kafka.topology import BrokerEndpoint
from tidemill.model.errors import ProtocolViolation

SETTINGS = bytes.fromhex("00001e0400000000000003")
ALERT = bytes.fromhex("15030100020246")


def connect_to(said: bytes) -> Exception:
    """The error of a connection to a server that sends these bytes, whatever the request, and closes."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            talk, _ = listener.accept()
            with talk:
                talk.recv(1 << 16)
                talk.sendall(said)

        thread = threading.Thread(target=serve)
        thread.start()
        address = BrokerEndpoint(*listener.getsockname())
        with pytest.raises(Exception, match=f":{address.port} ?") as caught:
            BlockingConnection(address, ClientOptions((address,)))
        thread.join()
    return caught.value


@pytest.mark.parametrize(
    ("said", "line"),
    [
        (SETTINGS, "uses gRPC, not the Kafka protocol"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "uses HTTP, not the Kafka protocol"),
        (ALERT, "uses TLS; check security.protocol"),
    ],
)
def test_an_error_names_the_protocol_of_another_listener(said: bytes, line: str) -> None:
    error = connect_to(said)
    assert isinstance(error, NotKafka)
    assert line in str(error)
    assert not error.retriable


def test_an_unknown_protocol_is_not_named() -> None:
    silent, strange = connect_to(b""), connect_to(b"SSH-2.0-OpenSSH_9.2\r\n")
    assert isinstance(silent, ConnectionLost)
    assert "before its first response; check security.protocol" in str(silent)
    assert isinstance(strange, ProtocolViolation)
    assert "check that it is a Kafka broker" in str(strange)
