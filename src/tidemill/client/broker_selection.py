"""Chooses the brokers to connect to, by asking the configured one.

A carrier is used as it is: its address is known to work. A broker with only the overseer role returns the carriers with
weights. Each client draws by weight, so that many clients spread as the overseer wants.
"""

import random
from typing import Any

import grpc.aio

from tidemill.client.rpc import RpcChannel
from tidemill.wire.grpc import broker_pb2 as wire
from tidemill.wire.grpc import broker_pb2_grpc as generated

CHOOSE_TIMEOUT_S = 5.0
_draw = random.SystemRandom()


async def carriers(
    channel: RpcChannel, *, topic: str = "", timeline: str = "", timeout_s: float = CHOOSE_TIMEOUT_S
) -> list[str]:
    """Return the addresses to use instead of this one, in the order to try; empty if this one will do."""
    request = wire.ChooseBrokersRequest(timeline=timeline) if timeline else wire.ChooseBrokersRequest(topic=topic)
    stub: Any = generated.BrokerServiceStub(channel)
    try:
        reply = await stub.ChooseBrokers(request, timeout=min(timeout_s, CHOOSE_TIMEOUT_S))
    except grpc.aio.AioRpcError:
        return []  # it is unreachable, or older than this call: the next call will show
    if reply.carries:
        return []
    weights = {choice.broker.address: choice.weight for choice in reply.choices if choice.broker.address}
    return in_drawn_order(weights, _draw)


def in_drawn_order(weights: dict[str, int], draw: random.Random) -> list[str]:
    """Return all addresses in random order, each position drawn by weight from the remaining ones."""
    left = dict(weights)
    order: list[str] = []
    while left:
        [address] = draw.choices(list(left), list(left.values()))
        del left[address]
        order.append(address)
    return order
