"""Many wrong logins at once, slow logins, and logins that ask which users exist."""

import base64
import os
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress

import pytest
from tests.hostile.frames import SIZE, Peer, request
from tests.hostile.logins import (
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    Scram,
    authenticate,
    bearer,
    handshake,
    log_in,
    plain,
)
from tests.hostile.secured import SecuredBroker, secured_broker
from tests.support.waiting import eventually

from tidemill.testing import Broker

FLOOD = 1_000
ATTACKERS = 16
HONEST_LOGIN_S = 10.0
PAUSE_S = 0.02
WAITING = 400
HALF_SENT = 800
FAILED = 58
UNKNOWN_NAMES = [f"unknown{number}" for number in range(8)]


@pytest.fixture(scope="module")
def broker() -> Iterator[SecuredBroker]:
    with secured_broker() as started:
        for name in ("erin", "frank", "grace"):
            started.add_user(name)
        yield started
        assert '"level": "error"' not in started.log_text()


def step_back() -> None:
    """Give this thread the CPU that the broker and the honest client leave: attackers have machines of their own."""
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 15)


def wrong_login(broker: SecuredBroker, mechanism: str, name: str, password: str = "wrong") -> int:
    """The error of a wrong login; 0 if the broker closes the connection."""
    with broker.peer(timeout_s=60.0) as peer:
        handshake(peer, mechanism)
        if mechanism == "PLAIN":
            message = plain(name, password)
        elif mechanism == "OAUTHBEARER":
            authenticate(peer, bearer("a.b.c"))
            message = b"\x01"
        else:
            exchange = Scram(name, password, mechanism)
            message = exchange.final(
                authenticate(peer, exchange.first()).auth_bytes, proof=bytes(32 if "256" in mechanism else 64)
            )
        return int(authenticate(peer, message).error_code)


@pytest.mark.parametrize(
    ("mechanism", "name", "count"),
    [
        ("PLAIN", "alice", FLOOD),
        ("SCRAM-SHA-256", "alice", FLOOD),
        ("SCRAM-SHA-512", "unknown", FLOOD // 2),
        ("OAUTHBEARER", "", FLOOD // 2),
    ],
)
def test_a_thousand_wrong_logins(broker: SecuredBroker, mechanism: str, name: str, count: int) -> None:
    """All are refused, and meanwhile honest users log in: by SCRAM, which is measured, and by PLAIN."""
    with broker.watched(), ThreadPoolExecutor(ATTACKERS, initializer=step_back) as attackers:
        attempts = [attackers.submit(wrong_login, broker, mechanism, name, f"wrong{number}") for number in range(count)]
        honest = []
        while not all(each.done() for each in attempts):
            began = time.monotonic()
            broker.logged_in("mallory", mechanism="PLAIN").close()
            honest.append(time.monotonic() - began)
            time.sleep(PAUSE_S)
        assert {each.result() for each in attempts} == {FAILED}
    print(f"{len(honest)} honest logins by PLAIN, slowest {max(honest):.3f} s")
    assert max(honest) < HONEST_LOGIN_S


def test_passwords_that_wait_do_not_keep_others_out(broker: SecuredBroker) -> None:
    """More wrong passwords at once than the broker checks: an honest user waits for a moment and is served."""
    with broker.watched(), ExitStack() as stack:
        peers = [stack.enter_context(broker.peer(timeout_s=60.0)) for _ in range(WAITING)]
        for peer in peers:
            handshake(peer, "PLAIN")
        for number, peer in enumerate(peers):
            peer.send(request(SASL_AUTHENTICATE, 2, {"auth_bytes": plain("alice", f"wrong{number}")}))
        began = time.monotonic()
        broker.logged_in("erin", mechanism="PLAIN").close()
        took_s = time.monotonic() - began
        broker.logged_in("erin", mechanism="SCRAM-SHA-512").close()
        assert all(peer.receive() is not None for peer in peers)
    print(f"the honest login took {took_s:.3f} s behind {WAITING} wrong ones")
    assert took_s < HONEST_LOGIN_S


def test_large_requests_before_the_login_are_few_bytes_in_all(broker: SecuredBroker) -> None:
    """Many clients send almost all of the largest request that is read before a login, and then nothing."""
    with broker.watched(), ExitStack() as stack:
        for _ in range(HALF_SENT):
            peer = stack.enter_context(broker.peer())
            with suppress(OSError):  # the broker may close the connection for another newcomer
                peer.send(SIZE.pack(65_000) + b"\0" * 64_000)
        broker.logged_in("erin", mechanism="SCRAM-SHA-256").close()


def test_clients_that_leave_in_the_middle_of_a_login(broker: SecuredBroker) -> None:
    with broker.watched():
        for number in range(FLOOD // 2):
            with broker.peer() as peer:
                peer.send(
                    request(SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"})
                    + request(SASL_AUTHENTICATE, 2, {"auth_bytes": plain("alice", f"wrong{number}")})
                )
        broker.logged_in("frank", mechanism="PLAIN").close()


def test_logins_again_and_again_on_one_connection(broker: SecuredBroker) -> None:
    """Every login is right. The broker stays quick for others."""
    with broker.watched(), broker.logged_in("mallory") as peer:
        for _ in range(200):
            log_in(peer, "mallory", broker.passwords["mallory"])


def challenge(broker: SecuredBroker, name: str, mechanism: str) -> dict[str, str]:
    """The parts of the challenge for a user."""
    with broker.peer() as peer:
        handshake(peer, mechanism)
        answer = authenticate(peer, Scram(name, "", mechanism).first())
        assert not answer.error_code
        return dict(part.split("=", 1) for part in answer.auth_bytes.decode().split(","))


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_challenge_does_not_say_whether_a_user_exists(broker: SecuredBroker, mechanism: str) -> None:
    """An unknown user has a salt of its own, which stays, and iterations and a size that users have."""
    known = [challenge(broker, name, mechanism) for name in ("admin", "alice", "erin")]
    shapes = {(each["i"], len(base64.b64decode(each["s"]))) for each in known}
    found = {}
    for name in UNKNOWN_NAMES:
        first, second = challenge(broker, name, mechanism), challenge(broker, name, mechanism)
        assert (first["s"], first["i"]) == (second["s"], second["i"])
        assert first["r"] != second["r"]
        found[name] = first
    assert len({each["s"] for each in found.values()}) == len(found)
    assert {(each["i"], len(base64.b64decode(each["s"]))) for each in found.values()} <= shapes


def test_most_unknown_users_look_like_most_users(broker: SecuredBroker) -> None:
    """The users of this broker were added by Kafka's API with 4096 iterations, all but one."""
    found = [challenge(broker, f"name{number}", "SCRAM-SHA-256")["i"] for number in range(60)]
    assert found.count("4096") > found.count("8192")


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_refusal_is_the_same_for_every_reason(broker: SecuredBroker, mechanism: str) -> None:
    said = set()
    for name in ("alice", "admin", *UNKNOWN_NAMES):
        with broker.peer() as peer:
            handshake(peer, mechanism)
            if mechanism == "PLAIN":
                answer = authenticate(peer, plain(name, "wrong"))
            else:
                exchange = Scram(name, "wrong", mechanism)
                answer = authenticate(peer, exchange.final(authenticate(peer, exchange.first()).auth_bytes))
            said.add((answer.error_code, answer.error_message, answer.auth_bytes, answer.session_lifetime))
    assert len(said) == 1


def test_the_time_of_a_refusal_is_the_same(broker: SecuredBroker) -> None:
    """The same number of rounds is computed. Times are compared by their median and within a wide bound."""
    times: dict[str, list[float]] = {"alice": [], "unknown1": [], "unknown2": []}
    for number in range(40):
        for name, found in times.items():
            with broker.peer() as peer:
                handshake(peer, "PLAIN")
                began = time.perf_counter()
                authenticate(peer, plain(name, f"wrong{number}"))
                found.append(time.perf_counter() - began)
    medians = {name: statistics.median(found) * 1000 for name, found in times.items()}
    print({name: f"{each:.2f} ms" for name, each in medians.items()})
    assert max(medians.values()) < 4 * min(medians.values())


@pytest.fixture(scope="module")
def impatient() -> Iterator[Broker]:
    """A broker that waits half a second for a login."""
    settings = {"listeners": "CLEAR://127.0.0.1:0", "listener.security.protocol.map": "CLEAR:SASL_PLAINTEXT"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tidemill.servers.kafka.connection.LOGIN_TIMEOUT_S", 0.5)
        patch.setattr("tidemill.servers.kafka.listener.SWEEP_INTERVAL_S", 0.05)
        flags = {"grpc": "none", "http": "none"}
        with Broker(settings=settings, flags=flags, admin_password="password") as started:
            yield started


def nothing(_: Peer) -> None:
    """Send nothing."""


def a_handshake(peer: Peer) -> None:
    handshake(peer, "SCRAM-SHA-256")


def half_a_login(peer: Peer) -> None:
    handshake(peer, "SCRAM-SHA-256")
    authenticate(peer, Scram("admin", "").first())


def versions_without_end(peer: Peer) -> None:
    while True:
        peer.ask(18, 0, {})


def handshakes_without_end(peer: Peer) -> None:
    while True:
        handshake(peer, "SCRAM-SHA-256")


def first_messages_without_end(peer: Peer) -> None:
    while True:
        half_a_login(peer)


def single_bytes(peer: Peer) -> None:
    for byte in request(SASL_HANDSHAKE, 1, {"mechanism": "SCRAM-SHA-256"}) * 1_000:
        peer.send(bytes([byte]))
        time.sleep(0.01)


SLOW: list[Callable[[Peer], None]] = [
    nothing,
    a_handshake,
    half_a_login,
    versions_without_end,
    handshakes_without_end,
    first_messages_without_end,
    single_bytes,
]


@pytest.mark.parametrize("behave", SLOW)
def test_a_login_takes_a_limited_time(impatient: Broker, behave: Callable[[Peer], None]) -> None:
    host, port = impatient.bootstrap_servers.split(":")
    with Peer((host, int(port)), 20.0) as peer:
        try:
            behave(peer)
        except (ConnectionError, OSError):
            return
        assert peer.receive() is None


def test_a_client_that_has_logged_in_stays(impatient: Broker) -> None:
    host, port = impatient.bootstrap_servers.split(":")
    with Peer((host, int(port)), 20.0) as peer:
        log_in(peer, "admin", "password")
        time.sleep(1.0)
        assert not peer.ask(18, 0, {}).error_code


def test_threads_of_a_flood_end(broker: SecuredBroker) -> None:
    """No thread, file or connection stays behind after all these attacks."""
    process = broker.process
    eventually(lambda: len(process.net_connections("tcp")) < 20)
    assert process.num_threads() < 40
    assert process.num_fds() < 200
    assert threading.active_count() < 60


def test_a_flood_does_not_fill_the_log(broker: SecuredBroker) -> None:
    """The log of thousands of wrong logins, of many kinds, is small."""
    before = len(broker.log_text().splitlines())
    for _ in range(400):
        with broker.peer() as peer:
            handshake(peer, "OAUTHBEARER")
            authenticate(peer, bearer("a.b.c"))
            peer.send(SIZE.pack(-1))
        with suppress(OSError), broker.peer("LOGIN") as peer:
            peer.send(request(3, 9, {"topics": []}))
    assert len(broker.log_text().splitlines()) - before < 50
