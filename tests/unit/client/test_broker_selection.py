"""Which addresses a client uses instead of the one that it asked."""

from collections.abc import AsyncIterator

import grpc.aio
import pytest_asyncio
from tests.support.postgres import free_port

from tidemill.client.broker_selection import PRODUCER, SelectionTerms, carriers, new_client_id
from tidemill.client.grpc_security import GrpcSecurity
from tidemill.client.rpc import close_channel, open_channel
from tidemill.wire.grpc import broker_pb2 as wire
from tidemill.wire.grpc import broker_pb2_grpc as generated


class AnsweringBroker(generated.BrokerServiceServicer):
    """A broker with one answer."""

    def __init__(self) -> None:
        self.address = ""
        self.reply = wire.ChooseBrokersReply()
        self.asked = wire.ChooseBrokersRequest()

    async def ChooseBrokers(self, request: wire.ChooseBrokersRequest, _: object) -> wire.ChooseBrokersReply:
        self.asked = request
        return self.reply


@pytest_asyncio.fixture
async def broker() -> AsyncIterator[AnsweringBroker]:
    server, found = grpc.aio.server(), AnsweringBroker()
    generated.add_BrokerServiceServicer_to_server(found, server)
    found.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    yield found
    await server.stop(0)


def answer(*addresses: str, carries: bool, move: bool = False) -> wire.ChooseBrokersReply:
    choices = [wire.Choice(broker=wire.BrokerInfo(address=each)) for each in addresses]
    return wire.ChooseBrokersReply(choices=choices, carries=carries, move=move)


async def named(broker: AnsweringBroker, terms: SelectionTerms) -> list[str]:
    channel = open_channel(broker.address, GrpcSecurity())
    try:
        return await carriers(channel, terms, GrpcSecurity())
    finally:
        await close_channel(channel)


async def test_an_overseer_names_carriers_in_order(broker: AnsweringBroker) -> None:
    broker.reply = answer("b:1", "", "a:1", carries=False)
    terms = SelectionTerms(timeline="later", role=PRODUCER, client_id=new_client_id())
    assert await named(broker, terms) == ["b:1", "a:1"]
    asked = broker.asked
    assert (asked.timeline, asked.role, asked.client_id) == ("later", PRODUCER, terms.client_id)


async def test_a_carrier_is_left_only_for_a_better_one_that_answers(broker: AnsweringBroker) -> None:
    dead, terms = f"127.0.0.1:{free_port()}", SelectionTerms("orders")
    broker.reply = answer(broker.address, dead, carries=True, move=True)
    assert await named(broker, terms) == [broker.address]
    assert broker.asked.topic == "orders"
    assert await named(broker, terms._replace(client_id="me", follows=False)) == []
    assert broker.asked.client_id == "", "it takes no place at the other broker"
    broker.reply = answer(dead, broker.address, carries=True, move=True)
    assert await named(broker, terms) == [], "the best one cannot be reached"
    broker.reply = answer(broker.address, carries=True)
    assert await named(broker, terms) == [], "the asked one is the best"


async def test_a_broker_that_does_not_answer_is_used_as_it_is() -> None:
    silent = AnsweringBroker()
    silent.address = f"127.0.0.1:{free_port()}"
    assert await named(silent, SelectionTerms("orders")) == []


def test_ids_differ() -> None:
    assert len({new_client_id() for _ in range(100)}) == 100
