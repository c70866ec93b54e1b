"""Rows of groups in tables: changes, heartbeats, leaves, and nothing twice."""

from tidemill.groups.core.overview import Overview, SeenGroup, SeenMember, SeenOffset
from tidemill.groups.core.table_changes import (
    DEAD,
    GONE,
    GROUP_MS,
    NANOSECONDS,
    Changes,
    RecordedOffset,
    Recording,
)

MEMBER = SeenMember("g", "m", 1, "consumer", "range", "me", "here", {"t": [0, 1]}, True, 1_000, "Stable")
OFFSET = SeenOffset("g", "t", 1, 7, 0, "", 900)


def here(_group: str) -> bool:
    return True


def written(recording: Recording, overview: Overview, now_ms: int) -> tuple[list[str], list[tuple[int, bool]]]:
    changes = recording.changes(overview, now_ms, here)
    recording.accept(changes)
    return [each.seen.state for each in changes.members], [(each.seen.offset, each.deleted) for each in changes.offsets]


def test_a_new_offset_is_written_once() -> None:
    recording = Recording()
    changes = recording.changes(Overview([MEMBER], [OFFSET]), 1_000, here)
    assert changes.members[0].joined_ns == 1_000_000_000
    assert changes.offsets == [RecordedOffset(OFFSET)]
    recording.accept(changes)
    assert written(recording, Overview([MEMBER], [OFFSET]), 2_000) == ([], [])


def test_changes_that_were_not_accepted_are_returned_again() -> None:
    recording = Recording()
    first = recording.changes(Overview([MEMBER], [OFFSET]), 1_000, here)
    assert recording.changes(Overview([MEMBER], [OFFSET]), 2_000, here).offsets == first.offsets


def test_a_heartbeat_is_written_when_the_last_one_is_old() -> None:
    recording = Recording()
    written(recording, Overview([MEMBER], []), 1_000)
    soon = MEMBER._replace(heard_ms=10_999)
    assert written(recording, Overview([soon], []), 20_000) == ([], [])
    changes = recording.changes(Overview([MEMBER._replace(heard_ms=11_000)], []), 30_000, here)
    assert [each.joined_ns for each in changes.members] == [1_000 * NANOSECONDS]


def test_a_new_generation_an_offset_and_their_end() -> None:
    recording = Recording()
    written(recording, Overview([MEMBER], [OFFSET]), 1_000)
    later = Overview([MEMBER._replace(generation=2)], [OFFSET._replace(offset=9)])
    assert written(recording, later, 2_000) == (["Stable"], [(9, False)])
    assert written(recording, Overview([], []), 3_000) == ([GONE], [(9, True)])
    assert written(recording, Overview([], []), 4_000) == ([], [])


def test_a_group_that_moved_to_another_broker_is_not_deleted() -> None:
    recording = Recording()
    written(recording, Overview([MEMBER], [OFFSET]), 1_000)
    changes = recording.changes(Overview([], []), 2_000, lambda _group: False)
    assert changes == Changes([], [], [])


def test_no_heartbeat_is_in_the_future_and_leaves_come_last() -> None:
    recording = Recording()
    ahead = Overview([MEMBER._replace(heard_ms=300_000)], [])
    first = recording.changes(ahead, 1_000, here)
    assert first.members[0].seen.heard_ms == 1_000
    recording.accept(first)
    assert recording.changes(Overview([], []), 1_000, here).members[0].seen.heard_ms == 1_001


def test_the_next_broker_also_names_the_first_member() -> None:
    """Members that are first seen at the same moment have times in the order in which they joined."""
    first = Recording()
    both = Overview([MEMBER._replace(member_id="z"), MEMBER._replace(member_id="a")], [])
    assert first.unrecorded_members(both) == [("g", "z"), ("g", "a")]
    changes = first.changes(both, 1_000, here)
    times = {("g", each.seen.member_id): each.joined_ns for each in changes.members}
    assert times["g", "z"] < times["g", "a"]
    first.accept(changes)
    assert first.unrecorded_members(both) == []
    third = MEMBER._replace(member_id="third")
    taken_over = Recording().changes(Overview([*both.members, third], []), 9_000, here, times)
    assert {("g", each.seen.member_id): each.joined_ns for each in taken_over.members} == {
        **times,
        ("g", "third"): 9_000 * NANOSECONDS + 2,
    }


def test_a_group_is_written_when_it_changes_once_a_day_and_when_it_ends() -> None:
    recording, group = Recording(), SeenGroup("g", "classic", "Stable", 1, "consumer", "range", "m", 1)

    def states(now_ms: int, *groups: SeenGroup) -> list[tuple[str, int]]:
        changes = recording.changes(Overview([], [], groups), now_ms, here)
        recording.accept(changes)
        return [(each.seen.state, each.written_ms) for each in changes.groups]

    assert states(1_000, group) == [("Stable", 1_000)]
    assert states(2_000, group) == []
    assert states(3_000, group._replace(state="PreparingRebalance")) == [("PreparingRebalance", 3_000)]
    assert states(4_000, group) == [("Stable", 4_000)]
    assert states(4_000 + GROUP_MS, group) == [("Stable", 4_000 + GROUP_MS)]
    assert states(5_000 + GROUP_MS) == [(DEAD, 5_000 + GROUP_MS)]
    assert states(6_000 + GROUP_MS) == []
