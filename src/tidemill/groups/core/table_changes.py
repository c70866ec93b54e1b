"""What of groups has changed since it was last written to tables for people: members, their signs of life, offsets.

A member is written when something about it changes, and again when its last written sign of life is old; one that is
gone is written as such, unless its whole group went to another broker. Heartbeats of all members go together, whoever
sends how many. What could not be written stays to be written: `accept` is called when it was.

A member keeps the time at which it joined, and no two have the same one: the earliest leads. Who takes a group over
from another broker asks for the times that are written already (`strangers`), since the journal of groups has none.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from tidemill.groups.core.overview import Overview, SeenMember, SeenOffset

HEARTBEAT_MS = 10_000
"""How old a written sign of life gets; far below the two minutes after which nobody counts a member any more."""
GONE = "Gone"
NANOSECONDS = 1_000_000
"""In a millisecond."""

MemberPlace = tuple[str, str]
OffsetPlace = tuple[str, str, int]


class RecordedMember(NamedTuple):
    """A member as it is written, with the time at which it joined."""

    seen: SeenMember
    joined_ns: int


class RecordedOffset(NamedTuple):
    """An offset as it is written, with who reads the partition; `deleted` when the group has it no more."""

    seen: SeenOffset
    owner: SeenMember | None
    deleted: bool = False


class Changes(NamedTuple):
    """What is to be written."""

    members: list[RecordedMember]
    offsets: list[RecordedOffset]


class Recording:
    """What was written last."""

    def __init__(self) -> None:
        self._members: dict[MemberPlace, RecordedMember] = {}
        self._offsets: dict[OffsetPlace, SeenOffset] = {}

    def strangers(self, overview: Overview) -> list[MemberPlace]:
        """Members of which nothing was written here yet."""
        places = ((each.group_id, each.member_id) for each in overview.members)
        return [place for place in places if place not in self._members]

    def changes(
        self,
        overview: Overview,
        now_ms: int,
        is_here: Callable[[str], bool],
        joined_ns: Mapping[MemberPlace, int] = MappingProxyType({}),
    ) -> Changes:
        """What differs from what was written; groups that are not here any more are another broker's to write.

        `joined_ns` has what is known of strangers; others have joined just now, in the order in which they are seen.
        """
        self._members = {place: each for place, each in self._members.items() if is_here(place[0])}
        self._offsets = {place: each for place, each in self._offsets.items() if is_here(place[0])}
        # While a rebalance is on, members have longer than a session: nobody was heard of in the future.
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
        return Changes(members, self._changed_offsets(overview, now_ms))

    def accept(self, changes: Changes) -> None:
        """They were written."""
        for member in changes.members:
            place = (member.seen.group_id, member.seen.member_id)
            if member.seen.state == GONE:
                self._members.pop(place, None)
            else:
                self._members[place] = member
        for offset in changes.offsets:
            at = _place(offset.seen)
            if offset.deleted:
                self._offsets.pop(at, None)
            else:
                self._offsets[at] = offset.seen

    def _changed_offsets(self, overview: Overview, now_ms: int) -> list[RecordedOffset]:
        owners = _owners(overview)
        present = {_place(each): each for each in overview.offsets}
        changed = [
            RecordedOffset(each, owners.get(place))
            for place, each in present.items()
            if self._offsets.get(place) != each
        ]
        gone = [each for place, each in self._offsets.items() if place not in present]
        return changed + [RecordedOffset(each._replace(commit_ms=now_ms), None, deleted=True) for each in gone]


def _is_news(seen: SeenMember, known: RecordedMember | None) -> bool:
    if known is None or seen.heard_ms - known.seen.heard_ms >= HEARTBEAT_MS:
        return True
    return seen._replace(heard_ms=0) != known.seen._replace(heard_ms=0)


def _place(offset: SeenOffset) -> OffsetPlace:
    return offset.group_id, offset.topic, offset.partition


def _owners(overview: Overview) -> Mapping[OffsetPlace, SeenMember]:
    return {
        (member.group_id, topic, partition): member
        for member in overview.members
        for topic, partitions in member.assignment.items()
        for partition in partitions
    }
