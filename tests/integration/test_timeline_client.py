"""The timeline client against a real broker: both faces, every call, every typed error."""

import asyncio
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from queue import SimpleQueue
from typing import Any, cast
from uuid import uuid4

import grpc
import pytest
from tests.support.waiting import eventually, eventually_async

from tidemill import Message, Timeline
from tidemill.client.kafka.errors import InvalidClientOption
from tidemill.client.timelines import AsyncTimeline
from tidemill.model import timeline_errors as errors
from tidemill.testing import Broker
from tidemill.timelines.consumer import TimelineConsumer
from tidemill.wire.grpc import timeline_pb2 as wire
from tidemill.wire.grpc import timeline_pb2_grpc as service

SOON_S = 0.05


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(flags={"timelines": "memory:"}) as running:
        yield running


@pytest.fixture
def timeline(broker: Broker) -> Iterator[Timeline]:
    with Timeline(broker.grpc, name=f"t-{uuid4().hex[:8]}", group="g1") as opened:
        opened.create(lease_ms=30_000)
        yield opened


def test_schedule_work_complete(timeline: Timeline) -> None:
    due = datetime.now(UTC) + timedelta(seconds=0.3)
    ids = timeline.schedule(
        [Message(b"one", due, id="natural", key=b"k"), Message(b"two", due.timestamp()), Message(b"", time.time() - 9)]
    )
    assert ids[0] == "natural"
    assert len(set(ids)) == 3
    got = {}
    for lease in timeline.work(consumer_id="w1", rack="a", max_in_flight=100):
        if lease.body:
            assert time.time() >= lease.due.timestamp()
        got[lease.id] = lease.body
        if lease.id == "natural":
            assert (lease.key, lease.attempts) == (b"k", 1)
            assert abs((lease.due - due).total_seconds()) <= 0.001
            assert lease.expires > datetime.now(UTC) + timedelta(seconds=20)
        lease.complete()
        if len(got) == 3:
            break
    assert sorted(got.values()) == [b"", b"one", b"two"]
    assert timeline.count() == 0


def test_create_is_idempotent_and_settings_are_checked(timeline: Timeline) -> None:
    assert timeline.create(lease_ms=30_000).settings["lease_ms"] == "30000"
    with pytest.raises(errors.TimelineExists):
        timeline.create(lease_ms=1_000)
    assert timeline.alter(lease_ms=1_000).settings["lease_ms"] == "1000"
    assert timeline.describe().state == "ready"
    assert timeline.name in {one.name for one in timeline.timelines()}
    for settings in ({"lease_ms": 0}, {"nonsense": 1}, {"lease_ms": "soon"}, {"dealer": "cards"}, {"max_attempts": 3}):
        with pytest.raises(errors.BadSetting):
            timeline.alter(**settings)


def test_a_lease_that_ended_is_refused(timeline: Timeline) -> None:
    timeline.schedule([Message(b"x", time.time(), id="m")])
    slow = timeline.work(consumer_id="slow", lease_ms=300, max_in_flight=1)
    late = next(slow)
    again = next(slow)
    assert again.id == "m"
    assert again.attempts > late.attempts
    for stale in (late.complete, late.release, lambda: late.extend(ms=1_000)):
        with pytest.raises(errors.StaleLease):
            stale()
    assert timeline.count() == 1


async def test_extend_release_and_stale_token(timeline: Timeline) -> None:
    async with AsyncTimeline(timeline._async._connection.address, timeline.name, group="g1") as opened:
        await opened.schedule([Message(b"x", time.time(), id="m")])
        attempts = []
        async for lease in opened.work(consumer_id="w", lease_ms=3_000):
            attempts.append(lease.attempts)
            if lease.attempts == 1:
                before = lease.expires
                await lease.extend(ms=60_000)
                assert lease.expires > before
                await lease.release(delay_ms=100)
                with pytest.raises(errors.StaleLease):
                    await lease.complete()
            elif lease.attempts == 2:
                held = lease
            elif lease.attempts == 3:
                with pytest.raises(errors.StaleLease):
                    await held.complete()
                with pytest.raises(errors.BadLease):
                    await lease.extend(ms=-5)
                await lease.complete()
                break
        assert attempts == [1, 2, 3]


def test_cancel_move_and_owners(broker: Broker, timeline: Timeline) -> None:
    far = time.time() + 3_600
    timeline.schedule([Message(b"x", far, id=name) for name in ("a", "b", "c")])
    timeline.cancel("a")
    with pytest.raises(errors.UnknownMessage):
        timeline.cancel(["a", "b"])
    with Timeline(broker.grpc, name=timeline.name, group="g2") as other:
        with pytest.raises(errors.NotOwner):
            other.cancel("c")
        with pytest.raises(errors.NotOwner):
            other.move("c", far)
    timeline.move("c", time.time())
    lease = next(iter(timeline.work(lease_ms=60_000)))
    assert lease.id == "c"
    timeline.schedule([Message(b"held", time.time(), id="held")])
    work = timeline.work(consumer_id="holder")
    held = next(iter(work))
    with pytest.raises(errors.LeaseIsLive):
        timeline.cancel(held.id)


def test_counts_lists_and_histogram(timeline: Timeline) -> None:
    start = time.time() + 1_000
    timeline.schedule([Message(f"m{number}".encode(), start + number, id=f"m{number}") for number in range(10)])
    timeline.schedule([Message(b"again", start, id="m3")])
    assert timeline.count() == timeline.count("waiting") == 10
    assert timeline.count("available") == timeline.count("leased") == 0
    assert timeline.count(start=start + 5, end=start + 7) == 2
    listed = timeline.messages(limit=3)
    assert [(one.id, one.status, one.body) for one in listed] == [(f"m{n}", "waiting", b"m%d" % n) for n in range(3)]
    bars = timeline.histogram(start, start + 10, 5)
    assert [bar.count for bar in bars] == [2] * 5
    assert abs(bars[1].start.timestamp() - start - 2) < 0.01
    for end in (start, start - 1):
        with pytest.raises(errors.BadDueTime, match="ends before it starts"):
            timeline.histogram(start, end)


@pytest.mark.parametrize(
    ("message", "error"),
    [
        (Message(b"x", 0, id=""), errors.BadMessageId),
        (Message(b"x", -1), errors.BadDueTime),
        (Message(b"x", 253_402_300_800), errors.BadDueTime),
        (Message(b"x", float("nan")), errors.BadDueTime),
        (Message(b"x", float("inf")), errors.BadDueTime),
        (Message(b"x" * (1024 * 1024 + 1), 0), errors.BodyTooLarge),
        (Message(b"x", 0, key=b"k" * 70_000), errors.BodyTooLarge),
        (Message(b"x", 0, id="i" * 201), errors.BadMessageId),
        (Message(b"x", 0, id="a\nb"), errors.BadMessageId),
        (Message(b"x", 0, id="\ud800"), errors.BadMessageId),
        (cast("Message", "text"), TypeError),
    ],
)
def test_wrong_messages_change_nothing(timeline: Timeline, message: Message, error: type[Exception]) -> None:
    with pytest.raises(error):
        timeline.schedule([Message(b"fine", time.time() + 60), message])
    assert timeline.count() == 0


def test_unknown_names(broker: Broker) -> None:
    with Timeline(broker.grpc, name="never") as opened:
        for call in (opened.count, opened.describe, opened.delete, lambda: opened.schedule([Message(b"x", 0)])):
            with pytest.raises(errors.UnknownTimeline):
                call()
        with pytest.raises(errors.UnknownTimeline):
            next(iter(opened.work()))
        with pytest.raises(errors.TimelineError):
            opened.count("nonsense")
    with Timeline(broker.grpc, name="bad name") as opened, pytest.raises(errors.BadTimelineName):
        opened.create()


def test_wrong_types_and_a_closed_timeline_give_errors(broker: Broker, timeline: Timeline) -> None:
    for wrong in (Message("text", 0), Message(b"x", "soon"), Message(b"x", 0, id=7), Message(b"x", 0, key="k")):  # type: ignore[arg-type] # what is tested
        with pytest.raises(TypeError, match="body and key must be bytes"):
            timeline.schedule([wrong])
    wrong_calls: list[tuple[Any, str]] = [
        (lambda: timeline.schedule(cast("Any", Message(b"x", 0))), r"schedule\(\[Message\(\.\.\.\)\]\)"),
        (lambda: timeline.cancel(cast("Any", [5])), "ids must be a str or a list of them"),
        (lambda: timeline.move("x", cast("Any", "tomorrow")), "'tomorrow' is not a due time"),
        (lambda: Timeline(cast("Any", None), "x"), "it must be host:port"),
    ]
    for call, line in wrong_calls:
        with pytest.raises(TypeError, match=line):
            call()
    with pytest.raises(errors.BatchTooLarge, match="limit=0 must be 1 to 1000"):
        timeline.messages(limit=0)
    assert timeline.messages(limit=10**12) == []
    closed = Timeline(broker.grpc, name=timeline.name)
    closed.close()
    with pytest.raises(errors.TimelineError, match="closed"):
        closed.count()


async def test_an_asyncio_timeline_ends_with_close(broker: Broker, timeline: Timeline) -> None:
    async with AsyncTimeline(broker.grpc, timeline.name) as opened:
        assert await opened.count() == 0
    with pytest.raises(errors.TimelineError, match="closed; open another one"):
        await opened.count()
    with pytest.raises(errors.TimelineError, match="closed; open another one"):
        await anext(opened.work())


def test_an_asyncio_timeline_belongs_to_its_loop(broker: Broker, timeline: Timeline) -> None:
    async def used(opened: AsyncTimeline) -> None:
        assert await opened.count() == 0

    shared = AsyncTimeline(broker.grpc, timeline.name)
    with asyncio.Runner() as first, asyncio.Runner() as second:
        first.run(used(shared))
        with pytest.raises(errors.TimelineError, match="another event loop; open one in each"):
            second.run(used(shared))
        first.run(shared.close())


@pytest.mark.parametrize("address", ["127.0.0.1:1", "127.0.0.1:1,127.0.0.1:2", "nowhere.invalid:6174"])
def test_no_server_there(address: str) -> None:
    """An address without a server is reported long before the time limit for a restart ends."""
    began = time.monotonic()
    line = f"no broker answers at {address.replace(',', ', ')}[:;] "
    with Timeline(address, name="x", timeout_ms=120_000, connect_timeout_ms=100) as opened:
        with pytest.raises(errors.Unreachable, match=line):
            opened.count()
        with pytest.raises(errors.Unreachable, match=line):
            next(opened.work())
    assert time.monotonic() - began < 60


@pytest.mark.parametrize("address", ["", "nowhere", "127.0.0.1:0", "127.0.0.1:99999", "127.0.0.1:6174,nowhere"])
def test_an_invalid_address_is_reported_at_once(address: str) -> None:
    with pytest.raises(InvalidClientOption, match=r"^address(: '.+' is not host:port| is empty)"):
        Timeline(address, name="x")


def test_a_broker_that_restarts_is_waited_for() -> None:
    """The connect timeout is for addresses that never answered: here it ends at once."""
    with Broker(process=True) as own, Timeline(own.grpc, "t", connect_timeout_ms=1) as opened:
        opened.create()
        own.kill()
        returned = ThreadPoolExecutor(1).submit(opened.schedule, [Message(b"x", 0)])
        lease = ThreadPoolExecutor(1).submit(next, opened.work(idle_ms=120_000))
        own.restart()
        assert len(returned.result(60)) == 1
        assert lease.result(60).body == b"x"


def test_another_address_takes_over(broker: Broker, timeline: Timeline) -> None:
    with Timeline(f"127.0.0.1:1, {broker.grpc}", timeline.name) as second:
        second.schedule([Message(b"x", time.time())])
    with Timeline(f"127.0.0.1:1,{broker.grpc}", timeline.name) as third:
        assert [lease.body for lease in third.work(idle_ms=500)] == [b"x"]


def test_a_consumer_of_the_same_id_replaces_the_first(timeline: Timeline) -> None:
    first = timeline.work(consumer_id="same", idle_ms=30_000)
    timeline.schedule([Message(b"1", time.time())])
    next(first).complete()
    second = timeline.work(consumer_id="same")
    timeline.schedule([Message(b"2", time.time() + SOON_S)])
    assert next(second).body == b"2"
    with pytest.raises(errors.ConsumerReplaced):
        next(first)


def test_a_message_that_arrives_early_is_held_until_its_due_time(
    timeline: Timeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TimelineConsumer, "lead_ms", 40)  # the broker is in this process
    start = time.time() + 1.0
    timeline.schedule([Message(b"x", start + number / 500) for number in range(200)])
    late_s = []
    for lease in timeline.work(consumer_id="far away", max_in_flight=1_000, idle_ms=30_000):
        late_s.append(time.time() - lease.due.timestamp())
        lease.complete()
        if len(late_s) == 200:
            break
    assert min(late_s) >= 0


def test_leases_that_were_not_handed_out_are_given_back(timeline: Timeline) -> None:
    timeline.schedule([Message(b"x", time.time(), id=str(number)) for number in range(20)])
    work = timeline.work(consumer_id="w1", lease_ms=600_000)
    next(work).complete()
    work.close()
    got = set()
    for lease in timeline.work(consumer_id="w2"):
        lease.complete()
        got.add(lease.id)
        if len(got) == 19:
            break
    assert timeline.count() == 0


@pytest.mark.parametrize("idle_ms", [1, 20])  # while it still shakes hands, and while its stream is open
async def test_a_stream_ends_before_its_event_loop(
    broker: Broker, timeline: Timeline, caplog: pytest.LogCaptureFixture, idle_ms: int
) -> None:
    """A call that ends after its event loop is an error that gRPC logs in the loop of the broker."""

    async def work() -> None:
        async with AsyncTimeline(broker.grpc, timeline.name) as opened:
            async for _ in opened.work(idle_ms=idle_ms):
                pass

    for _ in range(50):
        await work()
    timeline.ping()  # what comes late has come by now
    assert "Event loop is closed" not in caplog.text


def test_a_deleted_timeline_can_be_made_again(timeline: Timeline) -> None:
    timeline.schedule([Message(b"x", time.time() + 60)])
    timeline.delete()
    ends = time.monotonic() + 30
    while True:
        try:
            timeline.create()
            break
        except errors.TimelineDeleting:
            assert time.monotonic() < ends
    assert timeline.count() == 0


UNCLOSED = """
import sys, time
from tidemill import Message, Timeline
timeline = Timeline(sys.argv[1], name=sys.argv[2])
timeline.schedule([Message(b"x", time.time())])
work = timeline.work()
print(next(work).body)
"""


def test_a_program_that_closes_nothing_ends(broker: Broker, timeline: Timeline) -> None:
    words = [sys.executable, "-c", UNCLOSED, broker.grpc, timeline.name]
    ran = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stdout) == (0, "b'x'\n"), ran.stderr


FORKING = """
import os, sys
from tidemill import Timeline
timeline = Timeline(sys.argv[1], name=sys.argv[2])
timeline.count()
child = os.fork()
if not child:
    for attempt in (timeline.count, lambda: Timeline(sys.argv[1], name=sys.argv[2]).count()):
        try:
            attempt()
        except Exception as error:
            print(error, flush=True)
    os._exit(0)
os.waitpid(child, 0)
print(timeline.count())
"""


def test_a_forked_child_gets_an_error_instead_of_waiting_for_ever(broker: Broker, timeline: Timeline) -> None:
    words = [sys.executable, "-c", FORKING, broker.grpc, timeline.name]
    ran = subprocess.run(words, capture_output=True, text=True, timeout=60)
    old, new, count = ran.stdout.splitlines()
    assert "opened before the process was forked" in old
    assert "gRPC was in use when this process was forked" in new
    assert count == "0"


FORKING_A_BROKER = """
import os
from tidemill import Timeline
from tidemill.testing import Broker
with Broker() as broker:
    child = os.fork()
    if not child:
        try:
            Timeline(broker.grpc, name="x").count()
        except Exception as error:
            print(error, flush=True)
        os._exit(0)
    os.waitpid(child, 0)
"""


def test_so_is_the_child_of_a_process_with_a_broker() -> None:
    ran = subprocess.run([sys.executable, "-c", FORKING_A_BROKER], capture_output=True, text=True, timeout=60)
    assert "gRPC was in use when this process was forked" in ran.stdout
    assert ran.returncode == 0, ran.stderr


def test_work_ends_when_another_thread_closes_the_timeline(broker: Broker, timeline: Timeline) -> None:
    other = Timeline(broker.grpc, timeline.name)
    timeline.schedule([Message(b"x", 0)])
    work = other.work()
    next(work).complete()
    with ThreadPoolExecutor(1) as threads:
        rest = threads.submit(list, work)
        other.close()
        assert rest.result(60) == []
    with pytest.raises(errors.TimelineError, match="the Timeline is closed"):
        next(other.work())


def test_ping_measures(timeline: Timeline) -> None:
    for _ in range(3):
        latency = timeline.ping()
    assert latency.state == "healthy"
    assert abs(latency.drift_ms) < 1_000
    assert latency.round_trip_ms > 0


def test_many_messages_and_large_bodies(timeline: Timeline) -> None:
    bodies = {str(number): bytes([number % 256]) * 200_000 for number in range(60)}
    timeline.schedule([Message(body, time.time() + SOON_S, id=name) for name, body in bodies.items()])
    for lease in timeline.work(max_in_flight=60):
        assert bodies.pop(lease.id) == lease.body
        lease.complete()
        if not bodies:
            break


def test_wrong_sessions_and_handshakes(broker: Broker, timeline: Timeline) -> None:
    with grpc.insecure_channel(broker.grpc) as channel:
        stub = service.TimelineServiceStub(channel)

        def refused(call: str, request: object) -> tuple[grpc.StatusCode, str]:
            with pytest.raises(grpc.RpcError) as caught:
                getattr(stub, call)(request, timeout=10)
            names = dict(caught.value.trailing_metadata())
            return caught.value.code(), names["tidemill-error"]

        assert refused("Schedule", wire.ScheduleRequest(session="none")) == (
            grpc.StatusCode.FAILED_PRECONDITION,
            "UnknownSession",
        )
        for wrong in (
            {"id": ""},
            {"id": "w", "max_in_flight": 1_000_000},
            {"id": "w", "lease_ms": -1},
            {"id": "w", "rack": "r" * 300},
        ):
            request = wire.HandshakeRequest(role=wire.ROLE_CONSUMER, timeline=timeline.name, **wrong)
            assert refused("Handshake", request) == (grpc.StatusCode.INVALID_ARGUMENT, "BadHandshake")
        session = stub.Handshake(wire.HandshakeRequest(timeline=timeline.name, id="g")).session
        ups = iter([wire.WorkUp(start=wire.WorkStart(session=session))])
        with pytest.raises(grpc.RpcError) as caught:
            next(stub.Work(ups, timeout=10))
        assert "consumer" in caught.value.details()
        with pytest.raises(grpc.RpcError):
            next(stub.Work(iter([wire.WorkUp(readiness=wire.Readiness(busy=True))]), timeout=10))


@pytest.mark.parametrize("operation", [{"action": 77}, {}], ids=["of another schema", "that says nothing"])
def test_numbers_that_the_schema_does_not_have_change_nothing(
    broker: Broker, timeline: Timeline, operation: dict[str, Any]
) -> None:
    timeline.schedule([Message(b"kept", 0.0)])
    with grpc.insecure_channel(broker.grpc) as channel:
        stub = service.TimelineServiceStub(channel)
        with pytest.raises(grpc.RpcError) as caught:
            stub.Count(wire.CountRequest(timeline=timeline.name, status=cast("wire.Status", 77)), timeout=10)
        assert (caught.value.code(), caught.value.details()[:12]) == (grpc.StatusCode.INVALID_ARGUMENT, "status is 77")
        greeting = wire.HandshakeRequest(role=wire.ROLE_CONSUMER, timeline=timeline.name, id="w")
        session = stub.Handshake(greeting, timeout=10).session
        ups: SimpleQueue[wire.WorkUp] = SimpleQueue()
        ups.put(wire.WorkUp(start=wire.WorkStart(session=session)))
        downs = stub.Work(iter(ups.get, None), timeout=60)
        lease = next(down.leases.leases[0] for down in downs if down.WhichOneof("what") == "leases")
        unknown = wire.Operation(**operation, seq=lease.seq, token=lease.token)
        ups.put(wire.WorkUp(operations=wire.Operations(number=1, operations=[unknown])))
        with pytest.raises(grpc.RpcError) as caught:
            list(downs)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "must be complete, release or extend" in caught.value.details()
    assert timeline.count() == 1


def test_a_worker_says_that_it_is_busy_and_keeps_its_leases(timeline: Timeline) -> None:
    timeline.schedule([Message(b"first", time.time())])
    with ThreadPoolExecutor() as pool:
        work = timeline.work(consumer_id="w", idle_ms=20_000)
        first = next(work)
        assert not first.worker.is_busy
        first.worker.busy()
        first.worker.busy()
        first.extend(ms=60_000)
        timeline.schedule([Message(b"second", time.time())])
        waiting = pool.submit(next, work)
        with pytest.raises(TimeoutError):
            waiting.result(1.5)
        first.complete()
        first.worker.ready()
        second = waiting.result(20)
        assert second.body == b"second"
        assert not second.worker.is_busy
        second.complete()
        work.close()


async def test_a_busy_worker_stays_busy_when_it_connects_again() -> None:
    with Broker(process=True) as own:
        async with AsyncTimeline(own.grpc, "busy") as busy:
            await busy.create()
            await busy.schedule([Message(b"first", time.time())])
            work = busy.work(consumer_id="w", idle_ms=20_000)
            lease = await anext(work)
            await lease.worker.busy()
            await lease.complete()
            await asyncio.to_thread(own.kill)
            await asyncio.to_thread(own.restart)
            await busy.schedule([Message(b"second", time.time())])
            waiting = asyncio.ensure_future(anext(work))

            async def is_connected() -> bool:
                return (await busy.describe()).consumers == 1

            await eventually_async(is_connected)
            done, _ = await asyncio.wait([waiting], timeout=1)
            assert not done
            await lease.worker.ready()
            assert (await asyncio.wait_for(waiting, 20)).body == b"second"
            await work.aclose()


def test_pushes_stop_while_the_worker_fails_and_go_on_when_it_works_again(broker: Broker, timeline: Timeline) -> None:
    timeline.schedule([Message(b"%d" % number, time.time()) for number in range(60)])
    work = timeline.work(consumer_id="w", idle_ms=20_000)
    released = 0
    for lease in work:
        lease.release()
        released += 1
        if timeline.describe().delivery != "running":
            break
    described = timeline.describe()
    assert described.delivery in {"stopped", "probing"}
    assert "1 of 1 consumers release or lose most of their leases" in described.delivery_reason
    assert "timelines_consumers_failing" in _reasons(broker)
    assert released >= 20
    bodies = set()
    for lease in work:
        lease.complete()
        bodies.add(lease.body)
        if len(bodies) == 60:
            break
    work.close()
    assert timeline.describe().delivery == "running"
    assert timeline.count() == 0
    assert "timelines_consumers_failing" not in _reasons(broker)


def _reasons(broker: Broker) -> set[str]:
    with urllib.request.urlopen(f"{broker.http}/metrics", timeout=10) as response:
        lines = response.read().decode().splitlines()
    mark = 'tidemill_degraded{reason="'
    return {
        line.removeprefix(mark).partition('"')[0] for line in lines if line.startswith(mark) and float(line.split()[-1])
    }


def test_the_load_of_the_timeline_comes_with_the_leases(timeline: Timeline) -> None:
    timeline.schedule([Message(b"x", time.time()) for _ in range(200)])
    ends_s = time.monotonic() + 20
    for lease in timeline.work(consumer_id="w", max_in_flight=1, idle_ms=20_000):
        load = lease.timeline_load
        assert load == lease.worker.load
        if load is not None and 0 < load.available < 200 and load.late_ms > 0:
            break
        time.sleep(0.05)
        lease.complete()
        assert time.monotonic() < ends_s
    else:
        raise AssertionError("no load has arrived")
    assert load.available_max == 100_000
    assert load.arrivals_per_second >= 0


@pytest.mark.parametrize(("order", "expected"), [("due", b"0123456789"), ("lease-end", b"1234567890")])
def test_a_worker_asks_for_an_order(timeline: Timeline, order: Any, expected: bytes) -> None:
    now_s = time.time() - 60
    timeline.schedule([Message(b"%d" % number, now_s + number) for number in range(10)])
    for lease in timeline.work(consumer_id="first", max_in_flight=1, idle_ms=20_000):
        assert lease.body == b"0"
        lease.worker.busy()
        lease.release()
        break
    eventually(lambda: timeline.count("available") == 10 and timeline.describe().consumers == 0)
    got = []
    for lease in timeline.work(consumer_id="second", order=order, idle_ms=20_000):
        got.append(lease.body)
        lease.complete()
        if len(got) == 10:
            break
    assert b"".join(got) == expected


def test_an_order_that_does_not_exist_is_refused(broker: Broker, timeline: Timeline) -> None:
    with pytest.raises(errors.TimelineError, match="use lease-end, due, random"):
        next(timeline.work(order=cast("Any", "newest")))
    greeting = wire.HandshakeRequest(role=wire.ROLE_CONSUMER, timeline=timeline.name, id="w", order=cast("Any", 9))
    with grpc.insecure_channel(broker.grpc) as channel:
        stub = service.TimelineServiceStub(channel)
        with pytest.raises(grpc.RpcError) as caught:
            stub.Handshake(greeting, timeout=10)
    assert cast("Any", caught.value).code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_busy_consumer_is_left_alone_until_it_is_ready(broker: Broker, timeline: Timeline) -> None:
    with grpc.insecure_channel(broker.grpc) as channel:
        stub = service.TimelineServiceStub(channel)
        greeting = wire.HandshakeRequest(role=wire.ROLE_CONSUMER, timeline=timeline.name, id="w")
        session = stub.Handshake(greeting, timeout=10).session
        ready = await _busy_then_ready(broker.grpc, session, timeline)
    assert ready == 1


async def _busy_then_ready(address: str, session: str, timeline: Timeline) -> int:
    async with grpc.aio.insecure_channel(address) as channel:
        call = service.TimelineServiceStub(channel).Work()
        await call.write(wire.WorkUp(start=wire.WorkStart(session=session)))
        await call.write(wire.WorkUp(readiness=wire.Readiness(busy=True)))
        await call.read()
        timeline_async = AsyncTimeline(address, timeline.name, group="g1")
        await timeline_async.schedule([Message(b"x", time.time())])
        down = await call.read()
        assert down.WhichOneof("what") == "ping"
        await call.write(wire.WorkUp(readiness=wire.Readiness(busy=False)))
        while (down := await call.read()).WhichOneof("what") != "leases":
            pass
        await timeline_async.close()
        return len(down.leases.leases)


def test_the_earlier_keyword_for_the_name_warns(broker: Broker) -> None:
    with pytest.warns(DeprecationWarning, match=r"use Timeline\(address, name\)"):
        Timeline(broker.grpc, topic="reminders").close()
