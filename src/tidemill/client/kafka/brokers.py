"""Describes the brokers of a cluster, active and fenced, and unregisters brokers."""

from typing import NamedTuple

from tidemill.client.kafka.apis import DESCRIBE_CLUSTER, UNREGISTER_BROKER
from tidemill.client.kafka.protocol import plain
from tidemill.client.kafka.routing import RequestRouter
from tidemill.client.kafka.topology import BrokerEndpoint
from tidemill.model.errors import of_code


class DescribedBroker(NamedTuple):
    """One broker with its last known address."""

    node_id: int
    address: BrokerEndpoint | None
    rack: str | None
    missing: bool


class Described(NamedTuple):
    """A cluster: its controller and its brokers."""

    controller: int
    brokers: tuple[DescribedBroker, ...]


def describe(router: RequestRouter) -> Described:
    """The controller and every registered broker, including fenced ones."""

    def ask() -> Described:
        response = router.anyone().call(plain(DESCRIBE_CLUSTER, {"include_fenced_brokers": True})).message()
        if response.error_code:
            raise of_code(response.error_code, response.error_message or "")
        brokers = (
            DescribedBroker(
                each.broker_id,
                BrokerEndpoint(each.host, each.port) if each.host else None,
                each.rack,
                bool(getattr(each, "is_fenced", False)),
            )
            for each in response.brokers
        )
        return Described(response.controller_id, tuple(sorted(brokers)))

    return router.persist("describe the cluster", ask)


def forget(router: RequestRouter, node_id: int) -> None:
    """Unregister a broker that will not return."""

    def ask() -> None:
        response = router.anyone().call(plain(UNREGISTER_BROKER, {"broker_id": node_id})).message()
        if response.error_code:
            raise of_code(response.error_code, response.error_message or "")

    router.persist(f"forget broker {node_id}", ask)
