"""Producers over gRPC whose requests mostly fail: rejected for a while, late if they do not wait, others never."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from tidemill.model.errors import NotEnoughReplicas, TidemillError, TopicAuthorizationFailed
from tidemill.model.timeline_errors import BadDueTime, ProducerThrottled, StoreUnavailable, UnknownSession
from tidemill.security.core.failing_producers import DELAY_S, FAILING_REQUESTS_MIN, FailingProducers
from tidemill.security.core.principal import ANONYMOUS
from tidemill.servers.grpc.producer_throttle import HELD_MAX, ProducerThrottle

pytestmark = pytest.mark.event_loop("virtual_selector")


def call(peer: str = "ipv4:10.0.0.7:1", *, is_forwarded: bool = False) -> Any:
    return SimpleNamespace(caller=SimpleNamespace(principal=ANONYMOUS), peer=peer, is_forwarded=is_forwarded)


class Service:
    """Counts the calls that reach it, and fails them with an error."""

    def __init__(self, error: Exception | None) -> None:
        self.calls = 0
        self._error = error

    async def work(self) -> str:
        self.calls += 1
        if self._error is not None:
            raise self._error
        return "done"


async def failed(throttle: ProducerThrottle, service: Service, count: int, caller: Any = None) -> list[Exception]:
    errors: list[Exception] = []
    for _ in range(count):
        try:
            await throttle.watched(caller or call(), service.work)
        except (TidemillError, RuntimeError) as error:
            errors.append(error)
    return errors


@pytest.mark.parametrize("error", [BadDueTime("x"), TopicAuthorizationFailed("x"), UnknownSession("x")])
async def test_after_many_failures_calls_are_rejected_with_the_time_to_wait(error: Exception) -> None:
    throttle, service = ProducerThrottle(FailingProducers(90), ProducerThrottled), Service(error)
    errors = await failed(throttle, service, FAILING_REQUESTS_MIN + 1)
    assert service.calls == FAILING_REQUESTS_MIN
    rejection = errors[-1]
    assert isinstance(rejection, ProducerThrottled)
    assert 0 < rejection.retry_after_ms <= DELAY_S * 1_000
    assert f"try again in {rejection.retry_after_ms} ms" in str(rejection)
    await asyncio.sleep(rejection.retry_after_ms / 1_000 + 0.001)
    assert isinstance((await failed(throttle, service, 1))[0], type(error)), "after the wait the call is tried"


@pytest.mark.parametrize("error", [StoreUnavailable("x"), NotEnoughReplicas("x"), RuntimeError("x")])
async def test_errors_of_the_broker_are_no_reason(error: Exception) -> None:
    throttle, service = ProducerThrottle(FailingProducers(90), ProducerThrottled), Service(error)
    await failed(throttle, service, 200)
    assert service.calls == 200


async def test_other_connections_and_forwarded_calls_do_not_wait() -> None:
    throttle = ProducerThrottle(FailingProducers(90), ProducerThrottled)
    await failed(throttle, Service(BadDueTime()), 100)
    good = Service(None)
    assert not await failed(throttle, good, 100, call("ipv4:10.0.0.7:2"))
    assert not await failed(throttle, good, 100, call(is_forwarded=True))
    assert good.calls == 200


async def test_a_client_in_a_loop_makes_one_attempt_in_each_wait_and_gets_its_rejections_late() -> None:
    throttle, service = ProducerThrottle(FailingProducers(90), ProducerThrottled), Service(BadDueTime())
    await failed(throttle, service, FAILING_REQUESTS_MIN)
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    errors = await failed(throttle, service, 30)
    assert loop.time() - began_s == pytest.approx(10 * DELAY_S)
    assert service.calls == FAILING_REQUESTS_MIN + 10
    assert sum(isinstance(error, ProducerThrottled) for error in errors) == 20


async def test_few_rejections_of_a_client_wait_at_a_time() -> None:
    throttle, service = ProducerThrottle(FailingProducers(90), ProducerThrottled), Service(BadDueTime())
    await failed(throttle, service, FAILING_REQUESTS_MIN + 1)
    tasks = [asyncio.create_task(failed(throttle, service, 1)) for _ in range(500)]
    done, waiting = await asyncio.wait(tasks, timeout=DELAY_S / 2)
    assert len(waiting) == HELD_MAX
    assert len(done) == 500 - HELD_MAX
    await asyncio.wait(waiting)
    assert service.calls == FAILING_REQUESTS_MIN


async def test_a_producer_that_succeeds_again_is_not_rejected() -> None:
    failing = FailingProducers(90)
    throttle = ProducerThrottle(failing, ProducerThrottled)
    await failed(throttle, Service(BadDueTime()), FAILING_REQUESTS_MIN)
    await asyncio.sleep(DELAY_S)
    assert not await failed(throttle, Service(None), 1_000)
    assert not failing.is_watching


async def test_a_result_of_failures_only_counts_as_a_failure() -> None:
    throttle, service = ProducerThrottle(FailingProducers(90), ProducerThrottled), Service(None)
    for _ in range(FAILING_REQUESTS_MIN):
        await throttle.watched(call(), service.work, lambda reply: reply == "done")
    with pytest.raises(ProducerThrottled):
        await throttle.watched(call(), service.work)
