"""HTTP to brokers and what runs beside them: straight to the address.

A proxy by which a machine reaches the web (`http_proxy`) does not know brokers, and Kafka's protocol does not go
through it either: who can use one door of a broker shall be able to use all of them. `rpc.py` does the same for gRPC.
"""

import ssl
from urllib.request import HTTPSHandler, ProxyHandler, Request, build_opener


def fetch(request: str | Request, *, timeout_s: float, context: ssl.SSLContext | None = None) -> bytes:
    """The body of the answer; fails as `urllib.request.urlopen` does."""
    opener = build_opener(ProxyHandler({}), HTTPSHandler(context=context))
    with opener.open(request, timeout=timeout_s) as answer:
        found: bytes = answer.read()
        return found
