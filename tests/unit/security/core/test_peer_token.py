"""Tokens between brokers: what is changed is refused, and each is accepted once."""

import random
import string
from collections.abc import Callable

import pytest

from tidemill.security.core.peer_token import (
    CLOCK_TOLERANCE_MS,
    SIGNERS_MAX,
    TOKEN_CHARS_MAX,
    WINDOW,
    OpenedToken,
    PeerCall,
    PeerClaims,
    PeerStamp,
    PeerTokenRejected,
    SeenTokens,
    open_peer_token,
    write_peer_token,
)
from tidemill.security.core.principal import Principal, user

SECRET = b"of the cluster"
NOW_MS = 1_700_000_000_000
CALL = PeerCall("/tidemill.v1.BrokerService/Produce", 2, b"records")
CLAIMS = PeerClaims(1, user("ada.lovelace"), "10.0.0.7", expires_ms=NOW_MS + 5)
STAMP = PeerStamp(b"s" * 16, 7, NOW_MS)
ALPHABET = string.ascii_letters + string.digits + "-_"
TOKEN = write_peer_token(SECRET, CALL, CLAIMS, STAMP)


def opened(token: str, now_ms: int = NOW_MS) -> OpenedToken:
    return open_peer_token(SECRET, CALL.purpose, CALL.receiver, token, now_ms)


def refused(token: str = TOKEN, call: PeerCall = CALL, secret: bytes = SECRET, now_ms: int = NOW_MS) -> str:
    with pytest.raises(PeerTokenRejected) as caught:
        open_peer_token(secret, call.purpose, call.receiver, token, now_ms)
    assert "\n" not in str(caught.value)
    assert SECRET.decode() not in str(caught.value)
    return str(caught.value)


def test_a_token_states_what_was_signed() -> None:
    assert opened(TOKEN)[:2] == (CLAIMS, STAMP)
    assert TOKEN.isascii()
    assert TOKEN.isprintable()


@pytest.mark.parametrize("name", ["a", "a.b", "ümlaut ✓", "x" * 249, "CN=alice,O=Shop"])
@pytest.mark.parametrize("host", ["", "127.0.0.1", "fe80::1%eth0"])
def test_any_client_can_be_named(name: str, host: str) -> None:
    claims = PeerClaims(0, Principal("User", name), host)
    token = write_peer_token(SECRET, CALL, claims, STAMP)
    assert opened(token).claims == claims


@pytest.mark.parametrize(
    "change",
    [
        lambda call: call._replace(purpose="/tidemill.v1.BrokerService/DeleteTopic"),
        lambda call: call._replace(receiver=3),
    ],
)
def test_a_token_is_for_one_call(change: Callable[[PeerCall], PeerCall]) -> None:
    assert "not valid here" in refused(call=change(CALL))


def test_a_token_is_for_one_body() -> None:
    assert opened(TOKEN).is_for(b"records")
    assert not opened(TOKEN).is_for(b"Records")
    assert not opened(TOKEN).is_for(b"")


def test_every_changed_character_is_refused() -> None:
    draw = random.Random(1)
    for at, old in enumerate(TOKEN):
        new = draw.choice([each for each in "AZaz09-_." if each != old])
        refused(f"{TOKEN[:at]}{new}{TOKEN[at + 1 :]}")
    for new in set(ALPHABET) - {TOKEN[-1]}:  # some have the same bytes
        refused(TOKEN[:-1] + new)


def test_another_secret_is_refused() -> None:
    refused(secret=b"another")
    assert "not part of a cluster" in refused(secret=b"")
    refused(write_peer_token(b"", CALL, CLAIMS, STAMP))


@pytest.mark.parametrize(
    "token", ["", ".", "." * 10, "t1" + ".0" * 10, "t1" + ".é" * 10, "t1" + ".\ud800" * 10, "x" * (TOKEN_CHARS_MAX + 1)]
)
def test_an_invalid_token_is_rejected(token: str) -> None:
    refused(token)


@pytest.mark.parametrize("away_ms", [CLOCK_TOLERANCE_MS + 1, -CLOCK_TOLERANCE_MS - 1])
def test_a_token_of_another_time_is_refused(away_ms: int) -> None:
    assert "clocks" in refused(now_ms=NOW_MS + away_ms)
    edge_ms = CLOCK_TOLERANCE_MS if away_ms > 0 else -CLOCK_TOLERANCE_MS
    assert opened(TOKEN, NOW_MS + edge_ms)


@pytest.mark.parametrize(
    "claims",
    [
        CLAIMS._replace(principal=user("")),
        CLAIMS._replace(principal=user("x" * 250)),
        CLAIMS._replace(host="h" * 256),
        CLAIMS._replace(sender=-1),
        CLAIMS._replace(expires_ms=-1),
    ],
)
def test_claims_that_no_broker_makes_are_refused(claims: PeerClaims) -> None:
    refused(write_peer_token(SECRET, CALL, claims, STAMP))


def test_a_signer_has_a_fixed_length() -> None:
    refused(write_peer_token(SECRET, CALL, CLAIMS, STAMP._replace(signer=b"short")))


def test_each_token_is_accepted_once_in_any_order_within_the_window() -> None:
    draw = random.Random(2)
    numbers = list(range(1, 3 * WINDOW))
    for start in range(0, len(numbers), WINDOW // 2):
        part = numbers[start : start + WINDOW // 2]
        draw.shuffle(part)
        numbers[start : start + WINDOW // 2] = part
    seen = SeenTokens()
    assert all(seen.add(STAMP._replace(number=each), NOW_MS) for each in numbers)
    assert not any(seen.add(STAMP._replace(number=each), NOW_MS) for each in numbers)


def test_a_token_below_the_window_is_refused_even_if_it_is_new() -> None:
    seen = SeenTokens()
    assert seen.add(STAMP._replace(number=WINDOW + 10), NOW_MS)
    assert seen.add(STAMP._replace(number=11), NOW_MS)
    assert not seen.add(STAMP._replace(number=10), NOW_MS)
    assert seen.add(STAMP._replace(number=2**62), NOW_MS)
    assert not seen.add(STAMP._replace(number=2**62), NOW_MS)
    assert not seen.add(STAMP._replace(number=WINDOW + 10), NOW_MS)


def test_signers_do_not_disturb_each_other_and_are_forgotten_when_their_tokens_are_too_old() -> None:
    seen = SeenTokens()
    for each in range(SIGNERS_MAX):
        assert seen.add(PeerStamp(each.to_bytes(16), 1, NOW_MS), NOW_MS)
    late_ms = NOW_MS + 2 * CLOCK_TOLERANCE_MS
    with pytest.raises(PeerTokenRejected, match="brokers have sent tokens"):
        seen.add(PeerStamp(b"n" * 16, 1, late_ms), late_ms)
    assert not seen.add(PeerStamp((0).to_bytes(16), 1, NOW_MS), NOW_MS)
    assert seen.add(PeerStamp(b"n" * 16, 1, late_ms + 1), late_ms + 1)
    assert len(seen) == 1


def test_the_memory_of_a_signer_does_not_grow() -> None:
    seen = SeenTokens()
    for number in range(1, 5 * WINDOW):
        assert seen.add(STAMP._replace(number=number), NOW_MS)
    [(_, bits, _)] = seen._signers.values()
    assert bits == 2**WINDOW - 1


def test_a_thousand_signers_are_kept_and_forgotten_by_time() -> None:
    seen = SeenTokens()
    for number in range(1_000):
        assert seen.add(STAMP._replace(signer=number.to_bytes(16)), NOW_MS)
    with pytest.raises(PeerTokenRejected, match="1000 brokers have sent tokens"):
        seen.add(STAMP, NOW_MS)
    assert seen.add(STAMP, NOW_MS + 2 * CLOCK_TOLERANCE_MS + 1)
    assert len(seen) == 1
