"""HTTP to brokers and to the services next to them, without a proxy.

The proxy by which a machine reaches the web (`http_proxy`) does not know brokers, and Kafka's protocol does not use it
either. A machine that reaches one server of a broker should reach all of them. `rpc.py` does the same for gRPC.
"""

import ssl
from typing import Any
from urllib.request import HTTPRedirectHandler, HTTPSHandler, ProxyHandler, Request, build_opener


class NoRedirection(HTTPRedirectHandler):
    """Follows no redirection, because the login of a request is for one server only."""

    def redirect_request(self, *_: Any) -> None:
        """Follow none: the answer is an error with its status."""


def fetch(request: str | Request, *, timeout_s: float, context: ssl.SSLContext | None = None) -> bytes:
    """Return the body of the answer; raises like `urllib.request.urlopen`."""
    opener = build_opener(ProxyHandler({}), HTTPSHandler(context=context), NoRedirection())
    with opener.open(request, timeout=timeout_s) as answer:
        found: bytes = answer.read()
        return found
