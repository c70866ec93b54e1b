"""The changes of groups since they were last written to the group tables: groups, members, heartbeats, offsets.

A member is written when it changes, and again when its last written heartbeat is old. A member that left is written
with the state `Gone`, unless its whole group moved to another broker. Heartbeats of all members are written together,
however often each member sends one. A group is written when it changes, and once a day,
because old rows expire. A failed write is repeated: only `accept` marks changes as written.

A member keeps the time at which it joined. No two members have the same time, and the earliest one leads. A broker that
takes over a group reads the written times (`unrecorded_members`), because the group journal does not store them.
"""

from collections.abc import Callable, Container, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from tidemill.groups.core.overview import Overview, SeenGroup, SeenMember, SeenOffset
from tidemill.groups.core.table_comparison import OffsetPlace

HEARTBEAT_MS = 10_000
"""The largest age of a written heartbeat; far below the two minutes after which readers ignore a member."""
GROUP_MS = 86_400_000
"""The largest age of a written group."""
GONE = "Gone"
DEAD = "Dead"
"""The state of a group that does not exist any more, as in Kafka."""
NANOSECONDS = 1_000_000
"""Nanoseconds per millisecond."""

MemberPlace = tuple[str, str]


class RecordedMember(NamedTuple):
    """A member as it is written, with the time at which it joined."""

    seen: SeenMember
    joined_ns: int


class RecordedOffset(NamedTuple):
    """An offset as it is written; `deleted` if it was removed."""

    seen: SeenOffset
    deleted: bool = False


class RecordedGroup(NamedTuple):
    """A group as it is written, with the time of the row."""

    seen: SeenGroup
    written_ms: int


class Changes(NamedTuple):
    """The rows to write."""

    members: list[RecordedMember]
    offsets: list[RecordedOffset]
    groups: Sequence[RecordedGroup] = ()

    @property
    def group_ids(self) -> set[str]:
        """The groups that have rows."""
        return {each.seen.group_id for rows in self for each in rows}

    def of_groups(self, chosen: Container[str]) -> "Changes":
        """Return the rows of these groups."""
        return Changes(
            [each for each in self.members if each.seen.group_id in chosen],
            [each for each in self.offsets if each.seen.group_id in chosen],
            [each for each in self.groups if each.seen.group_id in chosen],
        )


class Recording:
    """The rows that were written last."""

    def __init__(self) -> None:
        self._members: dict[MemberPlace, RecordedMember] = {}
        self._offsets: dict[OffsetPlace, SeenOffset] = {}
        self._groups: dict[str, RecordedGroup] = {}

    @property
    def offsets(self) -> Mapping[OffsetPlace, SeenOffset]:
        """The offsets that were written last."""
        return self._offsets

    def adopt(self, offset: SeenOffset) -> None:
        """Mark an offset as written, because the table has it."""
        self._offsets[_place(offset)] = offset

    def rewrite(self, place: OffsetPlace) -> None:
        """Forget that an offset was written, so that it is written again."""
        self._offsets.pop(place, None)

    def unrecorded_members(self, overview: Overview) -> list[MemberPlace]:
        """Return the members that were not written yet."""
        places = ((each.group_id, each.member_id) for each in overview.members)
        return [place for place in places if place not in self._members]

    def changes(
        self,
        overview: Overview,
        now_ms: int,
        is_here: Callable[[str], bool],
        joined_ns: Mapping[MemberPlace, int] = MappingProxyType({}),
    ) -> Changes:
        """Return what differs from the written rows; groups that moved away are written by their new broker.

        `joined_ns` has the known times of unrecorded members. All others joined just now, in the order of the overview.
        """
        self._members = {place: each for place, each in self._members.items() if is_here(place[0])}
        self._offsets = {place: each for place, each in self._offsets.items() if is_here(place[0])}
        self._groups = {group_id: each for group_id, each in self._groups.items() if is_here(group_id)}
        # During a rebalance a session lasts longer, so the computed heartbeat could be in the future.
        seen = (each._replace(heard_ms=min(each.heard_ms, now_ms)) for each in overview.members)
        present = {(each.group_id, each.member_id): each for each in seen}
        members = [
            RecordedMember(each, known.joined_ns if known else joined_ns.get(place, now_ms * NANOSECONDS + number))
            for number, (place, each) in enumerate(present.items())
            if _is_news(each, known := self._members.get(place))
        ]
        members += [
            RecordedMember(known.seen._replace(state=GONE, assignment={}, heard_ms=now_ms + 1), known.joined_ns)
            for place, known in self._members.items()
            if place not in present
        ]
        return Changes(members, self._changed_offsets(overview, now_ms), self._changed_groups(overview, now_ms))

    def accept(self, changes: Changes) -> None:
        """Mark these changes as written."""
        for member in changes.members:
            place = (member.seen.group_id, member.seen.member_id)
            if member.seen.state == GONE:
                self._members.pop(place, None)
            else:
                self._members[place] = member
        for group in changes.groups:
            if group.seen.state == DEAD:
                self._groups.pop(group.seen.group_id, None)
            else:
                self._groups[group.seen.group_id] = group
        for offset in changes.offsets:
            at = _place(offset.seen)
            if offset.deleted:
                self._offsets.pop(at, None)
            else:
                self._offsets[at] = offset.seen

    def _changed_groups(self, overview: Overview, now_ms: int) -> list[RecordedGroup]:
        present = {each.group_id: each for each in overview.groups}
        changed = [
            RecordedGroup(each, now_ms)
            for group_id, each in present.items()
            if (known := self._groups.get(group_id)) is None
            or known.seen != each
            or now_ms - known.written_ms >= GROUP_MS
        ]
        dead = [each for group_id, each in self._groups.items() if group_id not in present]
        return changed + [RecordedGroup(each.seen._replace(state=DEAD, members=0), now_ms) for each in dead]

    def _changed_offsets(self, overview: Overview, now_ms: int) -> list[RecordedOffset]:
        present = {_place(each): each for each in overview.offsets}
        changed = [RecordedOffset(each) for place, each in present.items() if self._offsets.get(place) != each]
        removed = [each for place, each in self._offsets.items() if place not in present]
        return changed + [RecordedOffset(each._replace(commit_ms=now_ms), deleted=True) for each in removed]


def _is_news(seen: SeenMember, known: RecordedMember | None) -> bool:
    if known is None or seen.heard_ms - known.seen.heard_ms >= HEARTBEAT_MS:
        return True
    return seen._replace(heard_ms=0) != known.seen._replace(heard_ms=0)


def _place(offset: SeenOffset) -> OffsetPlace:
    return offset.group_id, offset.topic, offset.partition
