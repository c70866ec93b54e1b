"""Refuses a server that other machines can reach and that lets every client in, unless the operator allows it."""

from collections.abc import Iterator

import structlog

from tidemill.model.addresses import Address
from tidemill.model.errors import InvalidConfig
from tidemill.model.listeners import authenticates, is_local, server_protocol
from tidemill.settings import Settings

log = structlog.get_logger("tidemill.app")


def check_exposure(settings: Settings) -> None:
    """Raise InvalidConfig for a server that accepts anonymous clients from other machines."""
    exposed = [f"{name} {address}" for name, address in _anonymous(settings) if not is_local(address.host)]
    if not exposed:
        return
    if not settings.broker.security.allow_anonymous:
        raise InvalidConfig(
            f"{', '.join(exposed)}: other machines could connect without a login; require logins with "
            "--set listeners=SASL_SSL://host:port, or accept everyone with --set allow.anonymous=true"
        )
    log.warning("anonymous_clients_allowed", servers=exposed)


def _anonymous(settings: Settings) -> Iterator[tuple[str, Address]]:
    """The servers that authenticate no client, with their addresses."""
    broker = settings.broker
    for each in settings.listeners:
        if not authenticates(each.protocol, broker.of_listener(each.name)):
            yield "kafka", each.bind
    asked = {
        "grpc": (settings.grpc, broker.security.tidemill_grpc_security),
        "http": (settings.http, broker.security.tidemill_http_security),
    }
    for name, (address, protocol) in asked.items():
        effective = server_protocol(protocol, broker, settings.listeners)
        if address is not None and not authenticates(effective, broker.security):
            yield name, address
