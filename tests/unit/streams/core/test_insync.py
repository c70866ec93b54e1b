"""In-sync replicas and the high watermark: each rule, and all of them on random histories."""

from random import Random

import pytest

from tidemill.streams.core.insync import InSync, Lag, Term

LAG_MS = 1000.0
TERM = Term(leader=0, epoch=5, version=3, replicas=(0, 1, 2), isr=(0, 1, 2))


def leading(term: Term = TERM, start_offset: int = 10, high_watermark: int = 4) -> InSync:
    return InSync(term, start_offset, high_watermark, now_ms=0.0)


def test_the_high_watermark_is_what_all_in_sync_replicas_have() -> None:
    insync = leading()
    insync.fetched(1, 20, 30, 0.0)
    assert insync.advance(30, 2) == 4  # nothing is known of replica 2 yet
    insync.fetched(2, 15, 30, 0.0)
    assert insync.advance(30, 2) == 15
    insync.fetched(2, 30, 30, 0.0)
    assert insync.advance(30, 2) == 20
    assert insync.advance(12, 2) == 20, "it never goes back"


def test_the_leaders_own_disk_counts() -> None:
    insync = leading()
    for node in (1, 2):
        insync.fetched(node, 30, 30, 0.0)
    assert insync.advance(17, 2) == 17


def test_no_record_is_committed_below_min_insync() -> None:
    insync = leading(TERM._replace(isr=(0,)))
    assert not insync.enough(2)
    assert insync.advance(30, 2) == 4
    assert insync.advance(30, 1) == 30


def test_min_insync_above_the_number_of_replicas_asks_for_all() -> None:
    assert leading(TERM._replace(replicas=(0, 1), isr=(0, 1))).enough(3)


def test_b5_a_proposal_in_flight_counts() -> None:
    insync = leading(TERM._replace(isr=(0, 1)))
    insync.fetched(1, 30, 30, 0.0)
    insync.fetched(2, 12, 30, 0.0)
    assert insync.wanted(1.0, LAG_MS) == (0, 1, 2)
    insync.propose((0, 1, 2))
    assert insync.advance(30, 2) == 12, "replica 2 may be in sync already, for an election"
    insync.learn(TERM._replace(version=4, isr=(0, 1)), 2.0)
    assert insync.advance(30, 2) == 30, "a newer version says that it was not taken"


def test_b6_a_follower_comes_back_at_the_start_of_the_epoch_not_at_the_stale_watermark() -> None:
    insync = leading(TERM._replace(isr=(0, 1)), start_offset=10, high_watermark=4)
    insync.fetched(1, 10, 10, 0.0)
    insync.fetched(2, 9, 10, 0.0)
    assert insync.wanted(1.0, LAG_MS) is None
    insync.fetched(2, 10, 10, 2.0)
    assert insync.wanted(3.0, LAG_MS) == (0, 1, 2)


def test_b7_a_lost_proposal_is_made_again() -> None:
    insync = leading(TERM._replace(isr=(0, 1)))
    insync.fetched(1, 30, 30, 0.0)
    insync.fetched(2, 30, 30, 0.0)
    insync.propose((0, 1, 2))
    assert insync.wanted(1.0, LAG_MS) == (0, 1, 2)
    insync.fetched(1, 40, 40, 2000.0)
    assert insync.wanted(2000.0, LAG_MS) == (0, 1), "also when the agreed set is the right one again"


def test_a_lagging_replica_leaves_and_a_replica_that_follows_stays() -> None:
    insync = leading()
    for now in range(0, 5000, 100):
        end = 30 + now
        insync.fetched(1, end - 100, end, float(now))  # always behind by what came since it asked
        insync.fetched(2, 20, end, float(now))
    assert insync.wanted(4900.0, LAG_MS) == (0, 1)


def test_a_follower_that_left_does_not_join_and_delays_no_other() -> None:
    insync = leading(TERM._replace(isr=(0, 1)))
    insync.fetched(1, 30, 30, 0.0)
    insync.fetched(2, 30, 30, 0.0)
    assert insync.wanted(1.0, LAG_MS, present=lambda node: node != 2) is None
    assert insync.wanted(1.0, LAG_MS) == (0, 1, 2)


def test_old_news_and_strangers_change_nothing() -> None:
    insync = leading()
    assert not insync.learn(TERM._replace(isr=(0,)), 0.0)
    insync.fetched(9, 30, 30, 0.0)
    assert (insync.place_of(9), insync.term) == (-1, TERM)


def test_replicas_that_are_added_are_followed_from_then_on() -> None:
    insync = leading(TERM._replace(replicas=(0, 1), isr=(0, 1)))
    insync.learn(TERM._replace(version=4, replicas=(0, 1, 3), isr=(0, 1)), 10.0)
    insync.fetched(3, 30, 30, 11.0)
    assert insync.wanted(12.0, LAG_MS) == (0, 1, 3)


@pytest.mark.parametrize("seed", range(40))
def test_committed_records_are_on_every_member_of_every_possible_isr(seed: int) -> None:
    random = Random(seed)
    min_insync = random.choice([1, 2])
    truth = TERM
    insync = leading(truth, start_offset=0, high_watermark=0)
    own = 0
    places = {1: 0, 2: 0}
    now = 0.0
    for _ in range(300):
        now += random.choice([10.0, 600.0])
        own += random.randint(0, 3)
        node = random.choice([1, 2])
        places[node] = min(own, places[node] + random.randint(0, 4))
        insync.fetched(node, places[node], own, now)
        before = insync.high_watermark
        committed = insync.advance(own, min_insync)
        if committed > before:
            assert len(truth.isr) >= min_insync or truth.version > insync.term.version
            assert all(places[member] >= committed for member in truth.isr if member)
        wanted = insync.wanted(now, LAG_MS)
        if wanted is not None:
            insync.propose(wanted)
            if random.random() < 0.7 and insync.term.version == truth.version:
                truth = truth._replace(version=truth.version + 1, isr=wanted)
            if random.random() < 0.5:
                insync.learn(truth, now)


def test_lag_is_what_a_follower_has_not_asked_behind_and_since_when() -> None:
    insync = InSync(Term(1, 3, 7, (1, 2, 3), (1, 2, 3)), 10, 10, 1000.0)
    assert insync.lags(10, 1000.0) == {2: Lag(0, 0.0), 3: Lag(0, 0.0)}
    assert insync.lags(15, 1200.0) == {2: Lag(5, 200.0), 3: Lag(5, 200.0)}, "neither has asked in this epoch"
    insync.fetched(2, 15, 15, 1300.0)
    insync.fetched(3, 12, 15, 1300.0)
    assert insync.lags(15, 1400.0) == {2: Lag(0, 0.0), 3: Lag(3, 400.0)}
    assert insync.lags(20, 1500.0) == {2: Lag(5, 200.0), 3: Lag(8, 500.0)}


def test_a_term_is_newer_by_its_epoch_then_by_its_version() -> None:
    assert not TERM.newer_than(TERM)
    assert TERM._replace(version=4).newer_than(TERM)
    assert TERM._replace(epoch=6, version=0).newer_than(TERM)
    assert not TERM._replace(epoch=4, version=9).newer_than(TERM)
