"""Dealing: cover, evenness and movement, for racks of any sizes."""

from hypothesis import given, settings
from hypothesis import strategies as st

from tidemill.timelines.core.buckets import BUCKETS, BucketRange, Cover, join, overlay, rebalance, split
from tidemill.timelines.core.dealer import PIECES_PER_MEMBER_MAX, Deal, DealtConsumer, deal_racks, deal_ranges

# The example that the design left open: four consumers, one, and two.
UNEVEN = [DealtConsumer(name, name[0]) for name in ("A1", "A2", "A3", "A4", "B1", "C1", "C2")]

members = st.lists(
    st.builds(DealtConsumer, st.sampled_from([f"c{n:02}" for n in range(40)]), st.sampled_from("abcd")),
    min_size=1,
    max_size=25,
    unique_by=lambda member: member.id,
)
buckets = st.sampled_from([1, 2, 7, 12, 100, 2048, BUCKETS])


def dealt(consumers: list[DealtConsumer], count: int, previous: Deal | None = None) -> Deal:
    deal = deal_racks(consumers, count, previous)
    assert deal is not None
    return deal


def owners(cover: Cover, count: int) -> list[str]:
    """The owner of each bucket; fails when a bucket has none or two."""
    table = [piece.owner for piece in cover.pieces for _ in range(piece.start, piece.end + 1)]
    assert [piece.start for piece in cover.pieces] == [0, *(piece.end + 1 for piece in cover.pieces[:-1])]
    assert len(table) == count
    return table


def spread(names: list[str], table: list[str]) -> int:
    held = [table.count(name) for name in names]
    return max(held) - min(held)


def check(deal: Deal, consumers: list[DealtConsumer], count: int) -> None:
    primary = owners(deal.primary, count)
    assert spread([member.id for member in consumers], primary) <= 1
    assert set(deal.racks) == {member.rack for member in consumers}
    for rack, cover in deal.racks.items():
        inside = [member.id for member in consumers if member.rack == rack]
        table = owners(cover, count)
        assert set(table) <= set(inside)
        assert spread(inside, table) <= 1
        for first, here in zip(primary, table, strict=True):
            assert first == here or first not in inside  # what a member owns, its rack does not give to another


def test_three_consumers_share_2048_buckets_as_the_design_says() -> None:
    deal = deal_ranges([DealtConsumer("C"), DealtConsumer("A"), DealtConsumer("B")], 2048)
    assert deal is not None
    assert deal.primary.pieces == (BucketRange(0, 682, "A"), BucketRange(683, 1364, "B"), BucketRange(1365, 2047, "C"))
    assert deal.candidates(683) == ("B",)


def test_without_consumers_there_is_no_deal() -> None:
    assert deal_ranges([], 10) is None
    assert deal_racks([], 10) is None


def test_two_racks_of_two_back_each_other_up_from_the_far_end() -> None:
    consumers = [DealtConsumer("A1", "A"), DealtConsumer("A2", "A"), DealtConsumer("B1", "B"), DealtConsumer("B2", "B")]
    deal = dealt(consumers, 12)
    assert [deal.primary.ranges(member.id) for member in consumers] == [((0, 2),), ((3, 5),), ((6, 8),), ((9, 11),)]
    for member in consumers:
        share = deal.share(member)
        assert sum(end - start + 1 for start, end in share.backup) == 3
        assert list(share.backup) == sorted(share.backup, reverse=True)
    for bucket in range(12):
        racks = {name[0] for name in deal.candidates(bucket)}
        assert racks == {"A", "B"}


def test_racks_of_four_one_and_two() -> None:
    deal = dealt(UNEVEN, 2048)
    check(deal, UNEVEN, 2048)
    assert {len(deal.candidates(bucket)) for bucket in range(2048)} == {3}
    lonely = deal.share(DealtConsumer("B1", "B"))
    assert sum(end - start + 1 for start, end in (*lonely.own, *lonely.backup)) == 2048


@given(st.integers(1, 3000), st.integers(1, 60))
def test_split_is_even_and_complete(count: int, parts: int) -> None:
    names = [f"c{index:02}" for index in range(parts)]
    assert spread(names, owners(split(count, names), count)) <= 1


@settings(max_examples=60)
@given(members, buckets)
def test_every_rack_covers_every_bucket_evenly(consumers: list[DealtConsumer], count: int) -> None:
    check(dealt(consumers, count), consumers, count)


@settings(max_examples=60)
@given(members, buckets, st.data())
def test_a_leave_moves_only_what_the_leaver_had(
    consumers: list[DealtConsumer], count: int, data: st.DataObject
) -> None:
    before = dealt(consumers, count)
    gone = data.draw(st.sampled_from(consumers))
    stay = [member for member in consumers if member != gone]
    if not stay:
        return
    after = dealt(stay, count, before)
    check(after, stay, count)
    old, new = owners(before.primary, count), owners(after.primary, count)
    assert all(was == now for was, now in zip(old, new, strict=True) if was != gone.id)


@settings(max_examples=60)
@given(members, buckets)
def test_a_join_moves_no_more_than_the_share_of_the_new_one(consumers: list[DealtConsumer], count: int) -> None:
    before = dealt(consumers, count)
    more = [*consumers, DealtConsumer("new", "a")]
    after = dealt(more, count, before)
    check(after, more, count)
    old, new = owners(before.primary, count), owners(after.primary, count)
    moved = [now for was, now in zip(old, new, strict=True) if was != now]
    assert set(moved) <= {"new"}
    assert len(moved) <= -(-count // len(more))


@settings(max_examples=30)
@given(st.lists(members, min_size=2, max_size=12))
def test_any_history_keeps_cover_and_evenness(history: list[list[DealtConsumer]]) -> None:
    deal: Deal | None = None
    for consumers in history:
        deal = dealt(consumers, 2048, deal)
        check(deal, consumers, 2048)
        assert dealt(consumers, 2048, deal) == deal  # nothing changed, nothing moves


def test_after_many_joins_the_pieces_stay_few() -> None:
    consumers = [DealtConsumer(f"c{index:03}", "abc"[index % 3]) for index in range(120)]
    deal: Deal | None = None
    for size in range(1, len(consumers) + 1):
        deal = dealt(consumers[:size], BUCKETS, deal)
        assert len(deal.primary.pieces) <= PIECES_PER_MEMBER_MAX * size
        assert all(len(cover.pieces) <= 2 * PIECES_PER_MEMBER_MAX * size for cover in deal.racks.values())
    assert deal is not None
    check(deal, consumers, BUCKETS)


def test_ranges_that_were_cut_grow_together_again() -> None:
    consumers = [DealtConsumer(f"c{index}") for index in range(8)]
    first = dealt(consumers, 2048)
    joined = dealt([*consumers, DealtConsumer("new")], 2048, first)
    assert len(joined.primary.pieces) > len(first.primary.pieces)
    assert len(dealt(consumers, 2048, joined).primary.pieces) == len(first.primary.pieces)


def test_another_number_of_buckets_is_dealt_afresh() -> None:
    consumers = [DealtConsumer("a"), DealtConsumer("b")]
    assert dealt(consumers, 100, dealt(consumers, 10)) == dealt(consumers, 100)


def test_overlay_and_join_are_inverse() -> None:
    upper = [BucketRange(0, 4, "a"), BucketRange(5, 9, "b")]
    lower = [BucketRange(0, 2, "x"), BucketRange(3, 9, "y")]
    cut = list(overlay(upper, lower))
    assert cut == [(BucketRange(0, 2, "a"), "x"), (BucketRange(3, 4, "a"), "y"), (BucketRange(5, 9, "b"), "y")]
    assert list(join(piece for piece, _ in cut)) == upper


def test_rebalance_assigns_what_had_no_owner() -> None:
    pieces = rebalance([BucketRange(0, 9, ""), BucketRange(10, 11, "a")], {"a": 6, "b": 6})
    assert pieces == [BucketRange(0, 5, "b"), BucketRange(6, 11, "a")]
