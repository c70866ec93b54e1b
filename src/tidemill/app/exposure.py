"""Refuses settings that are not safe: everyone is let in from other machines, or tokens cannot be checked."""

from collections.abc import Iterator

import structlog

from tidemill.model.addresses import Address
from tidemill.model.errors import InvalidConfig
from tidemill.model.listeners import authenticates, is_local, server_protocol
from tidemill.security.authenticator import OAUTHBEARER
from tidemill.security.core.oauth import check_keys_url
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


def check_token_settings(settings: Settings) -> None:
    """Raise InvalidConfig for a listener that accepts tokens without a safe address of the issuer's keys."""
    for each in settings.listeners:
        security = settings.broker.of_listener(each.name)
        if not each.requires_login or OAUTHBEARER not in security.sasl_enabled_mechanisms:
            continue
        if not security.sasl_oauthbearer_jwks_endpoint_url:
            raise InvalidConfig(
                f"listener {each.name} accepts {OAUTHBEARER} tokens, but their keys are not known; "
                "set sasl.oauthbearer.jwks.endpoint.url"
            )
        check_keys_url(security.sasl_oauthbearer_jwks_endpoint_url)
        if not security.sasl_oauthbearer_expected_audience:
            log.warning(
                "tokens_of_any_audience_accepted", listener=each.name, next_step="sasl.oauthbearer.expected.audience"
            )


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
