"""Which brokers to talk to, asked of the one that was given.

A broker that carries messages is used as it is: its address is known to work. One that only oversees names the
carriers, with weights; a client draws by them, so that many that come at once spread as the overseer wants.
"""

import random
from typing import Any

import grpc.aio

from tidemill.wire.grpc import broker_pb2 as wire
from tidemill.wire.grpc import broker_pb2_grpc as generated

CHOOSE_TIMEOUT_S = 5.0
_draw = random.SystemRandom()


async def carriers(
    channel: grpc.aio.Channel, *, topic: str = "", timeline: str = "", timeout_s: float = CHOOSE_TIMEOUT_S
) -> list[str]:
    """The addresses to use instead of this one, in the order to try them; none where this one will do."""
    request = wire.ChooseBrokersRequest(timeline=timeline) if timeline else wire.ChooseBrokersRequest(topic=topic)
    stub: Any = generated.BrokerServiceStub(channel)
    try:
        reply = await stub.ChooseBrokers(request, timeout=min(timeout_s, CHOOSE_TIMEOUT_S))
    except grpc.aio.AioRpcError:
        return []  # it is away, or older than this call: whatever is asked next will tell
    if reply.carries:
        return []
    weights = {choice.broker.address: choice.weight for choice in reply.choices if choice.broker.address}
    return in_drawn_order(weights, _draw)


def in_drawn_order(weights: dict[str, int], draw: random.Random) -> list[str]:
    """All of them, each place drawn by weight from those that are left."""
    left = dict(weights)
    order: list[str] = []
    while left:
        [address] = draw.choices(list(left), list(left.values()))
        del left[address]
        order.append(address)
    return order
