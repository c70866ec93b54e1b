"""Guesses the protocol of a server that is not a Kafka broker from its first bytes, for the error message."""

TLS_ALERT, TLS_MAJOR = 0x15, 0x03
HTTP2_SETTINGS = 0x04
PORTS = "use the kafka= address of the broker's ready line, for example kafka=127.0.0.1:9092"


def listener_hint(head: bytes) -> str | None:
    """The explanation for a server that sent these four bytes instead of the size of a Kafka response.

    A gRPC server starts with its settings, a few dozen bytes. A TLS server sends an alert.
    """
    if len(head) < 4:
        return None
    if head[0] == TLS_ALERT and head[1] == TLS_MAJOR:
        return "uses TLS; check security.protocol: use SSL, or SASL_SSL if it requires a login"
    if head[:2] == b"\0\0" and head[3] == HTTP2_SETTINGS:
        return f"uses gRPC, not the Kafka protocol; {PORTS}"
    if head == b"HTTP":
        return f"uses HTTP, not the Kafka protocol; {PORTS}"
    return None
