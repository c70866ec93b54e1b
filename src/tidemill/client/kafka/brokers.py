"""The brokers of a cluster: those that are there, and those that are missed."""

from typing import NamedTuple

from tidemill.client.kafka.apis import DESCRIBE_CLUSTER, UNREGISTER_BROKER
from tidemill.client.kafka.protocol import plain
from tidemill.client.kafka.routing import RequestRouter
from tidemill.client.kafka.topology import BrokerEndpoint
from tidemill.model.errors import of_code


class DescribedBroker(NamedTuple):
    """One broker: where it is, or was."""

    node_id: int
    address: BrokerEndpoint | None
    rack: str | None
    missing: bool


class Described(NamedTuple):
    """A cluster."""

    controller: int
    brokers: tuple[DescribedBroker, ...]


def describe(router: RequestRouter) -> Described:
    """The controller and every broker, also those that were there once."""

    def ask() -> Described:
        told = router.anyone().call(plain(DESCRIBE_CLUSTER, {"include_fenced_brokers": True})).message()
        if told.error_code:
            raise of_code(told.error_code, told.error_message or "")
        brokers = (
            DescribedBroker(
                each.broker_id,
                BrokerEndpoint(each.host, each.port) if each.host else None,
                each.rack,
                bool(getattr(each, "is_fenced", False)),
            )
            for each in told.brokers
        )
        return Described(told.controller_id, tuple(sorted(brokers)))

    return router.persist("describe the cluster", ask)


def forget(router: RequestRouter, node_id: int) -> None:
    """Take a broker that is gone for good off the list."""

    def ask() -> None:
        told = router.anyone().call(plain(UNREGISTER_BROKER, {"broker_id": node_id})).message()
        if told.error_code:
            raise of_code(told.error_code, told.error_message or "")

    router.persist(f"forget broker {node_id}", ask)
