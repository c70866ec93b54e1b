"""Logins of requests: right ones, wrong ones, and many wrong ones next to an honest client."""

import asyncio
import base64
import logging
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from secrets import token_bytes

import pytest
import pytest_asyncio
import structlog
from structlog.testing import capture_logs
from tests.support.tokens import Issuer
from tests.support.waiting import eventually_async

from tidemill.model.broker_settings import parse
from tidemill.model.errors import RequestTimedOut, SaslAuthenticationFailed
from tidemill.security.audit import Audit
from tidemill.security.authenticator import Authenticator
from tidemill.security.core.failed_logins import FAILURES_AT_ONCE
from tidemill.security.core.principal import user
from tidemill.security.request_login import GUESSES_AT_ONCE, GUESSES_WAITING_MAX, RequestLogin
from tidemill.security.users import Users, user_with_password

SETTINGS = parse({}).security
HOST = "10.0.0.7"


@pytest.fixture(autouse=True)
def _logs_at_info() -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.INFO))


class Site:
    """A request login whose delays end when the test says so."""

    def __init__(self, settings: object = SETTINGS) -> None:
        self.users = Users(None)  # type: ignore[arg-type] # the users are set below
        self.now_s = 0.0
        self.delays: list[float] = []
        self.go_on = asyncio.Event()
        self.go_on.set()
        self.authenticator = Authenticator(
            self.users, token_bytes=token_bytes, steady_s=lambda: self.now_s, clock_ms=lambda: 1_700_000_000_000
        )
        self.login = RequestLogin(
            self.authenticator,
            Audit(lambda: self.now_s),
            settings,  # type: ignore[arg-type]
            token_bytes=token_bytes,
            steady_s=lambda: self.now_s,
            sleep=self.sleep,
        )

    def add(self, name: str, password: str) -> None:
        self.users._known[name] = user_with_password(password, token_bytes)
        self.users.version += 1

    async def sleep(self, seconds: float) -> None:
        self.delays.append(seconds)
        await self.go_on.wait()

    async def ask(self, name: str, password: str, host: str = HOST) -> str:
        value = f"Basic {base64.b64encode(f'{name}:{password}'.encode()).decode()}"
        return str((await self.login.user(value, host, "grpc")).principal)


@pytest_asyncio.fixture
async def site() -> AsyncIterator[Site]:
    made = Site()
    made.add("ada", "tea")
    yield made
    made.authenticator.close()


async def test_the_right_password(site: Site) -> None:
    with capture_logs() as logs:
        assert await site.ask("ada", "tea") == "User:ada"
        assert await site.ask("ada", "tea") == "User:ada"
    assert [(each["event"], each["who"], each["mechanism"]) for each in logs] == [
        ("login_succeeded", "User:ada", "BASIC")
    ]
    assert not site.delays


@pytest.mark.parametrize(("name", "password"), [("ada", "coffee"), ("eve", "tea"), ("ada", "tea ")])
async def test_a_wrong_login_is_answered_late_and_logged_without_the_password(
    site: Site, name: str, password: str
) -> None:
    with capture_logs() as logs, pytest.raises(SaslAuthenticationFailed) as caught:
        await site.ask(name, password)
    assert site.delays == [SETTINGS.connection_failed_authentication_delay_ms / 1000]
    assert [(each["event"], each["who"], each["host"]) for each in logs] == [("login_failed", name, HOST)]
    assert password not in str(logs).replace("steam", "")
    assert password not in str(caught.value)


@pytest.mark.parametrize("value", [None, "", "Basic ?", "Digest x", "Bearer a b"])
async def test_a_missing_login_is_refused_at_once(site: Site, value: str | None) -> None:
    with capture_logs() as logs, pytest.raises(SaslAuthenticationFailed):
        await site.login.user(value, HOST, "grpc")
    assert not site.delays
    assert [each["event"] for each in logs] == ["login_failed"]


async def test_a_changed_password_is_refused_from_then_on(site: Site) -> None:
    await site.ask("ada", "tea")
    site.add("ada", "coffee")
    for _ in range(2):
        with pytest.raises(SaslAuthenticationFailed):
            await site.ask("ada", "tea")
    assert await site.ask("ada", "coffee") == "User:ada"


async def test_many_wrong_logins_of_one_address_wait_and_then_are_refused(site: Site) -> None:
    await site.ask("ada", "tea")
    site.go_on.clear()
    guesses = [asyncio.create_task(site.ask("ada", f"guess {number}")) for number in range(1_000)]
    await eventually_async(lambda: len(site.delays) >= GUESSES_AT_ONCE)
    assert len(site.delays) == GUESSES_AT_ONCE
    refused = [each for each in guesses if each.done()]
    assert len(refused) == len(guesses) - GUESSES_AT_ONCE - GUESSES_WAITING_MAX
    assert all(isinstance(each.exception(), RequestTimedOut) for each in refused)
    # The client that has logged in before is served next to them, and so is one of another address.
    assert await site.ask("ada", "tea") == "User:ada"
    assert await site.ask("ada", "tea", "10.0.0.8") == "User:ada"
    site.add("bob", "milk")
    assert await site.ask("bob", "milk", "10.0.0.8") == "User:bob"
    site.go_on.set()
    ended = await asyncio.gather(*guesses, return_exceptions=True)
    assert sum(type(each) is SaslAuthenticationFailed for each in ended) == GUESSES_AT_ONCE + GUESSES_WAITING_MAX
    assert site.delays[-1] > site.delays[FAILURES_AT_ONCE - 1]
    assert not site.login._turns


async def test_a_cancelled_request_gives_its_turn_back(site: Site) -> None:
    site.go_on.clear()
    guesses = [asyncio.create_task(site.ask("ada", f"guess {number}")) for number in range(GUESSES_AT_ONCE)]
    await eventually_async(lambda: len(site.delays) >= GUESSES_AT_ONCE)
    honest = asyncio.create_task(site.ask("ada", "tea"))
    await asyncio.sleep(0)
    for each in guesses:
        each.cancel()
    assert await honest == "User:ada"
    await asyncio.gather(*guesses, return_exceptions=True)
    assert not site.login._turns


async def test_tokens(tmp_path: Path) -> None:
    issuer = Issuer("one")
    url = issuer.publish(tmp_path / "keys.json")
    site = Site(replace(SETTINGS, sasl_oauthbearer_jwks_endpoint_url=url, sasl_oauthbearer_clock_skew_seconds=0))
    now_s = 1_700_000_000
    try:
        token = issuer.token("ada", iat=now_s, exp=now_s + 60)
        for _ in range(2):
            found = await site.login.user(f"Bearer {token}", HOST, "http")
            assert found == (user("ada"), (now_s + 60) * 1000)
        expired = issuer.token("ada", iat=now_s - 60, exp=now_s)
        with capture_logs() as logs, pytest.raises(SaslAuthenticationFailed) as caught:
            await site.login.user(f"Bearer {expired}", HOST, "http")
        assert str(caught.value) == "the token is not valid"
        assert [each["reason"] for each in logs] == ["the token has expired"]
        assert expired not in str(logs)
    finally:
        site.authenticator.close()


async def test_a_broker_without_an_issuer_accepts_no_token(site: Site) -> None:
    with pytest.raises(SaslAuthenticationFailed, match="not valid"):
        await site.login.user(f"Bearer {Issuer('one').token('ada')}", HOST, "http")
