"""Refuses settings that are not safe: anonymous clients of other machines, or tokens that cannot be checked."""

from collections.abc import Iterator, Sequence

import structlog

from tidemill.app.engine_urls import ENCRYPT_WITH, unverified_engines
from tidemill.model.addresses import Address
from tidemill.model.errors import InvalidConfig
from tidemill.model.listeners import GRPC, HTTP, authenticates, has_authentication, is_local, server_security
from tidemill.security.authenticator import OAUTHBEARER
from tidemill.security.core.oauth import check_keys_url
from tidemill.security.users import Users
from tidemill.settings import Settings

DEFAULT_KAFKA = Address("0.0.0.0", 9092)  # noqa: S104 -- an example in a message
log = structlog.get_logger("tidemill.app")


def check_exposure(settings: Settings) -> None:
    """Raise InvalidConfig for a server that accepts anonymous clients from other machines; log what else is unsafe."""
    exposed = exposed_servers(settings)
    if exposed and not settings.broker.security.allow_anonymous:
        raise InvalidConfig(refusal(settings, exposed))
    if exposed:
        log.warning("anonymous_clients_allowed", servers=exposed)
    if has_authentication(settings.broker, settings.listeners):
        for name in unverified_engines(settings):
            log.warning("engine_is_not_verified", setting=name, next_step=ENCRYPT_WITH[name])
    for each in settings.listeners:
        if each.protocol == "SASL_PLAINTEXT" and not is_local(each.bind.host):
            log.warning("logins_are_not_encrypted", listener=str(each), next_step=f"SASL_SSL://{each.bind}")
    for name, address in ((GRPC, settings.grpc), (HTTP, settings.http)):
        if address is None or is_local(address.host):
            continue
        if server_security(name, settings.broker, settings.listeners).protocol == "SASL_PLAINTEXT":
            log.warning("logins_are_not_encrypted", listener=f"{name} {address}", next_step="ssl.keystore.location")


def exposed_servers(settings: Settings) -> list[str]:
    """The servers that other machines can use without a login, with their addresses."""
    return [f"{name} {address}" for name, address in _anonymous(settings) if not is_local(address.host)]


def refusal(settings: Settings, exposed: Sequence[str]) -> str:
    """Why these servers are not opened, and what to do."""
    return (
        f"{', '.join(exposed)}: other machines could connect without a login; require logins "
        f"({_first_steps(settings)}), or accept everyone with --set allow.anonymous=true"
    )


def _first_steps(settings: Settings) -> str:
    """The commands from an open broker to one with TLS and a first user."""
    at = settings.kafka or DEFAULT_KAFKA
    start = f"--set listeners=SASL_SSL://{at} --set ssl.keystore.location=certs/broker.pem"
    if settings.broker.security.listeners:
        start = "SASL_SSL in listeners, or tidemill.grpc.security and tidemill.http.security left out"
    user = f"tidemill user add admin --super {_place(settings)}"
    return f"tidemill cert create broker --host NAME; {user}; serve with {start}"


def has_tls(settings: Settings) -> bool:
    """Whether a server of the broker uses TLS."""
    servers = (GRPC, settings.grpc), (HTTP, settings.http)
    return any(each.uses_tls for each in settings.listeners) or any(
        address is not None and server_security(name, settings.broker, settings.listeners).uses_tls
        for name, address in servers
    )


def warn_without_administrator(settings: Settings, users: Users) -> None:
    """Log how to add the first user, where no user could log in, or none could change anything."""
    if not has_authentication(settings.broker, settings.listeners) or settings.broker.security.super_users:
        return
    found = [user for name in users.names() if (user := users.find(name)) is not None]
    if any(user.is_super for user in found):
        return
    has_passwords = any(each.requires_login and _takes_passwords(settings, each.name) for each in settings.listeners)
    add = f"stop the broker, then: tidemill user add admin --super {_place(settings)}; or " if has_passwords else ""
    log.warning(
        "no_users" if has_passwords and not found else "no_administrator",
        next_step=f"{add}set super.users=User:name",
    )


def _place(settings: Settings) -> str:
    """Where the first user is added, as options of `tidemill user`."""
    is_local_broker = settings.coordination.startswith("local:")
    return f"--data-dir {settings.data_dir}" if is_local_broker else "--coordination FILE"


def _takes_passwords(settings: Settings, listener: str) -> bool:
    return any(each != OAUTHBEARER for each in settings.broker.of_listener(listener).sasl_enabled_mechanisms)


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
    for name, address in ((GRPC, settings.grpc), (HTTP, settings.http)):
        if address is not None and not server_security(name, broker, settings.listeners).authenticates:
            yield name, address
