"""Recurring records in the replicated store: the journal has the next occurrence before the last one is completed."""

from pathlib import Path

from tests.unit.scheduling.test_replicated_store import ROOM, TOPIC, Keeper, entry, keepers

from tidemill.scheduling.core.waiting_records import WaitingEntry, decode, encode
from tidemill.timelines.consumer import Granted
from tidemill.timelines.core.lease import Claim, CommandOutcome
from tidemill.timelines.core.message import EVERYTHING, TimedMessage
from tidemill.timelines.core.recurrence import MissedPolicy, Recurrence

EVERY_MS = 3_600_000
START_MS = 1_700_000_000_000
RULE = Recurrence(every_ms=EVERY_MS, missed=MissedPolicy.ALL, start_ms=START_MS)


def recurring(keeper: Keeper, name: str, rule: Recurrence = RULE) -> WaitingEntry:
    return entry(keeper.broker, name, name.encode())._replace(due_ms=START_MS, rule=rule.to_text())


async def waiting(keeper: Keeper) -> list[TimedMessage]:
    return await keeper.timelines.messages(ROOM, EVERYTHING, 100)


async def leased(keeper: Keeper) -> list[Granted]:
    """All messages of the room under leases, as the broker delivers them."""
    now_ms = keeper.timelines.clock.now_ms()
    found = [one for one in await waiting(keeper) if one.due_ms <= now_ms]
    claims = [Claim(one.seq, one.version, "scheduler", now_ms + 60_000, one.due_ms) for one in found]
    leases = await keeper.store.acquire(ROOM, claims, now_ms=now_ms)
    return [Granted(one, lease) for one, lease in zip(found, leases, strict=True) if lease is not None]


def test_rules_and_moves_are_read_as_they_were_written() -> None:
    whole = WaitingEntry("t", "a", 5, b"t" * 32, b"body", RULE.to_text())
    move = WaitingEntry("t", "a", 7, moves=True)
    for one in (whole, whole._replace(rule=""), move, WaitingEntry("t", "a")):
        assert decode(*encode(one)) == one


async def test_the_next_occurrence_is_in_the_journal_and_at_the_next_keeper(tmp_path: Path) -> None:
    async with keepers(tmp_path) as (first, second):
        await first.lead(1)
        await first.rooms.take([recurring(first, "a"), recurring(first, "last", RULE._replace(left=1))])
        granted = await leased(first)
        await first.rooms.recur(TOPIC, granted)
        (left,) = await waiting(first)
        assert left.id == "a"
        assert left.due_ms > START_MS
        assert (left.due_ms - START_MS) % EVERY_MS == 0
        assert (left.holder, left.attempts, left.body) == (None, 0, b"a")
        await first.lead(None)
        await second.lead(2)
        (found,) = await waiting(second)
        assert (found.id, found.due_ms, found.recurrence) == ("a", left.due_ms, left.recurrence)
        assert found.key == left.key, "its marks stay the same"


async def test_a_cancel_under_a_lease_ends_the_recurrence(tmp_path: Path) -> None:
    async with keepers(tmp_path) as (first, second):
        await first.lead(1)
        await first.rooms.take([recurring(first, "a"), recurring(first, "b")])
        granted = await leased(first)
        await first.rooms.take([WaitingEntry(TOPIC, "a")])
        await first.rooms.recur(TOPIC, granted)
        assert [one.id for one in await waiting(first)] == ["b"]
        await first.lead(None)
        await second.lead(2)
        assert [one.id for one in await waiting(second)] == ["b"]


async def test_a_record_is_moved_here_and_at_the_next_keeper(tmp_path: Path) -> None:
    far_ms = 4_100_000_000_000
    async with keepers(tmp_path) as (first, second):
        await first.lead(1)
        moves = [WaitingEntry(TOPIC, name, far_ms, moves=True) for name in ("a", "b", "unknown")]
        await first.rooms.take(moves)  # nothing waits yet
        await first.rooms.take(
            [recurring(first, "a"), entry(first.broker, "b", b"b"), recurring(first, "held"), *moves]
        )
        expected = {"a": far_ms, "b": far_ms, "held": START_MS}
        assert {one.id: one.due_ms for one in await waiting(first)} == expected
        (held,) = await leased(first)
        await first.rooms.take([WaitingEntry(TOPIC, "held", far_ms, moves=True)])
        assert await first.timelines.cancel(ROOM, ["held"]) == [CommandOutcome.DONE]
        assert held.message.id == "held"
        await first.lead(None)
        await second.lead(2)
        found = {one.id: (one.due_ms, bool(one.recurrence), one.body) for one in await waiting(second)}
        assert found["a"] == (far_ms, True, b"a")
        assert found["b"] == (far_ms, False, b"b")
        assert found["held"][0] == START_MS, "a record that is being delivered stays as it is"


async def test_a_ticket_is_kept_from_occurrence_to_occurrence(tmp_path: Path) -> None:
    async with keepers(tmp_path) as (first, _):
        await first.lead(1)
        one = recurring(first, "a")
        await first.rooms.take([one])
        for _number in range(3):
            await first.rooms.recur(TOPIC, await leased(first))
        (left,) = await waiting(first)
        assert left.key == one.ticket
