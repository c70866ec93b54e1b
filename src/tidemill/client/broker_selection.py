"""Chooses the brokers to connect to, by asking the configured one.

The overseer answers with the carriers, best first, and counts this client at the first one until it has connected. So
clients use the brokers in that order. A carrier that was asked and is not the best names the best one. That one is used
only if it can be reached: the configured address is known to work, and the advertised one may be for other networks.
"""

import asyncio
import secrets
from collections.abc import Sequence
from typing import Any, NamedTuple

import grpc.aio

from tidemill.client.grpc_security import GrpcSecurity
from tidemill.client.kafka.errors import ClientError
from tidemill.client.rpc import RpcChannel, close_channel, open_channel
from tidemill.wire.grpc import broker_pb2 as wire
from tidemill.wire.grpc import broker_pb2_grpc as generated

CHOOSE_TIMEOUT_S = 5.0
REACH_TIMEOUT_S = 2.0
CLIENT_ID_BYTES = 8
CONSUMER, PRODUCER = wire.CLIENT_ROLE_CONSUMER, wire.CLIENT_ROLE_PRODUCER


class SelectionTerms(NamedTuple):
    """What a client needs brokers for: a topic or a timeline, which it reads or writes."""

    topic: str = ""
    timeline: str = ""
    role: wire.ClientRole = CONSUMER
    client_id: str = ""
    follows: bool = True
    """Whether the client leaves a carrier for a better one."""


def new_client_id() -> str:
    """An id for one client, so that it counts once however often it asks."""
    return secrets.token_hex(CLIENT_ID_BYTES)


async def carriers(
    channel: RpcChannel, terms: SelectionTerms, security: GrpcSecurity, *, timeout_s: float = CHOOSE_TIMEOUT_S
) -> list[str]:
    """Return the addresses to use instead of this one, in the order to try; empty if this one will do."""
    # A client that stays where it is takes no place elsewhere.
    request = wire.ChooseBrokersRequest(role=terms.role, client_id=terms.client_id if terms.follows else "")
    if terms.timeline:
        request.timeline = terms.timeline
    else:
        request.topic = terms.topic
    stub: Any = generated.BrokerServiceStub(channel)
    try:
        reply = await stub.ChooseBrokers(request, timeout=min(timeout_s, CHOOSE_TIMEOUT_S))
    except grpc.aio.AioRpcError:
        return []  # it is unreachable, or older than this call: the next call will show
    addresses = [choice.broker.address for choice in reply.choices if choice.broker.address]
    if not reply.carries:
        return addresses
    if not (reply.move and terms.follows):
        return []
    return await reachable(addresses[:1], security)


async def reachable(addresses: Sequence[str], security: GrpcSecurity) -> list[str]:
    """Return those of these addresses that accept a connection."""
    found = await asyncio.gather(*(_is_reachable(address, security) for address in addresses))
    return [address for address, works in zip(addresses, found, strict=True) if works]


async def _is_reachable(address: str, security: GrpcSecurity) -> bool:
    try:
        channel = open_channel(address, security)
    except ClientError:
        return False
    try:
        await asyncio.wait_for(channel.channel_ready(), REACH_TIMEOUT_S)
    except TimeoutError:
        return False
    finally:
        await close_channel(channel)
    return True
