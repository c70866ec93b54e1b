"""Who speaks at an address where no Kafka broker does: a guess from the first bytes, for the one line of the error."""

TLS_ALERT, TLS_MAJOR = 0x15, 0x03
HTTP2_SETTINGS = 0x04
PORTS = "which port is which, a broker says in its ready line: kafka=127.0.0.1:9092"


def stranger(head: bytes) -> str | None:
    """What to say about a listener that began with these four bytes, where a Kafka broker says how long its answer is.

    A gRPC server greets with its settings, of a few dozen bytes, and one with TLS with an alert about what it got.
    """
    if len(head) < 4:
        return None
    if head[0] == TLS_ALERT and head[1] == TLS_MAJOR:
        return "speaks TLS; does security.protocol fit? give SSL, or SASL_SSL where it asks for a login"
    if head[:2] == b"\0\0" and head[3] == HTTP2_SETTINGS:
        return f"speaks gRPC, not Kafka's protocol; {PORTS}"
    if head == b"HTTP":
        return f"speaks HTTP, not Kafka's protocol; {PORTS}"
    return None
