"""The time of day of an etcd member, from the `Date` header of its HTTP responses.

etcd's key-value protocol has no clock. Its client port also answers `GET /version` over HTTP, unless etcd was started
with a separate port for HTTP. Then there is no readable response, and etcd's clock is unknown.
"""

import asyncio
import ssl
from email.utils import parsedate_to_datetime

from tidemill.cluster.etcd.url import EtcdTls
from tidemill.cluster.interface import ClockReading

TIMEOUT_S = 2.0
HEAD_BYTES_MAX = 16 * 1024
HALF_SECOND_MS = 500
"""The header has whole seconds, rounded down. The middle of that second is at most half a second off."""


async def member_clock(member: str, tls: EtcdTls | None) -> ClockReading | None:
    """The time of this member; None when it does not report it."""
    host, _, port = member.rpartition(":")
    try:
        async with asyncio.timeout(TIMEOUT_S):
            reader, writer = await asyncio.open_connection(
                host.strip("[]"), int(port), ssl=None if tls is None else _context(tls), limit=HEAD_BYTES_MAX
            )
            try:
                writer.write(f"GET /version HTTP/1.1\r\nHost: {member}\r\nConnection: close\r\n\r\n".encode())
                return date_of(await reader.readuntil(b"\r\n\r\n"))
            finally:
                writer.close()
    except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        return None


def date_of(head: bytes) -> ClockReading | None:
    """The time in the header of an HTTP response."""
    for line in head.decode("latin-1").split("\r\n"):
        name, _, value = line.partition(":")
        if name.strip().lower() == "date":
            try:
                at = parsedate_to_datetime(value.strip())
            except ValueError:
                return None
            return ClockReading(int(at.timestamp() * 1_000) + HALF_SECOND_MS, HALF_SECOND_MS)
    return None


def _context(tls: EtcdTls) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=tls.ca)
    if tls.cert is not None:
        context.load_cert_chain(tls.cert, tls.key)
    return context
