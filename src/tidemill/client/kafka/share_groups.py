"""Share groups for an administrator: list, describe, configure and delete them, and move where they begin."""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any, NamedTuple

from tidemill.client.kafka.apis import (
    ALTER_SHARE_OFFSETS,
    DELETE_GROUPS,
    DESCRIBE_SHARE_GROUP,
    DESCRIBE_SHARE_OFFSETS,
    LIST_GROUPS,
    ClientApi,
)
from tidemill.client.kafka.coordinators import check, partition_error
from tidemill.client.kafka.protocol import Answer, plain
from tidemill.client.kafka.routing import Coordinated, RequestRouter
from tidemill.client.kafka.topic_configs import alter as alter_settings
from tidemill.model.errors import of_code
from tidemill.model.topics import TopicPartition

GROUP = 32
SHARE = "share"


class ListedShareGroup(NamedTuple):
    """A share group in a list."""

    group: str
    state: str


class ShareMember(NamedTuple):
    """A member of a share group."""

    member_id: str
    client_id: str
    client_host: str
    partitions: tuple[TopicPartition, ...]


class SharePlace(NamedTuple):
    """Where a share group is in a partition; -1 where that is not known."""

    place: TopicPartition
    start_offset: int
    lag: int


class DescribedShareGroup(NamedTuple):
    """A share group."""

    group: str
    state: str
    members: tuple[ShareMember, ...]
    places: tuple[SharePlace, ...]


def list_groups(router: RequestRouter) -> list[ListedShareGroup]:
    """The share groups of all brokers, by name."""

    def ask() -> list[ListedShareGroup]:
        found: dict[str, str] = {}
        for broker in router.everyone():
            response = broker.call(plain(LIST_GROUPS, {"states_filter": (), "types_filter": (SHARE,)})).message()
            check(response.error_code)
            found |= {each.group_id: each.group_state for each in response.groups}
        return [ListedShareGroup(*each) for each in sorted(found.items())]

    return router.persist("list share groups", ask)


def describe(router: RequestRouter, group: str) -> DescribedShareGroup:
    """A share group with its members and offsets. GroupIdNotFound for groups of other kinds."""
    fields: dict[str, Any] = {"group_ids": (group,), "include_authorized_operations": False}
    state, members = _at(router, group, DESCRIBE_SHARE_GROUP, fields, _members)
    wanted = {"groups": [{"group_id": group, "topics": None}]}
    return DescribedShareGroup(group, state, members, _at(router, group, DESCRIBE_SHARE_OFFSETS, wanted, _places))


def reset(router: RequestRouter, group: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Let a group without members begin at these offsets."""
    topics: dict[str, list[dict[str, int]]] = defaultdict(list)
    for place, offset in offsets.items():
        topics[place.topic].append({"partition_index": place.partition, "start_offset": offset})
    entries = [{"topic_name": name, "partitions": parts} for name, parts in topics.items()]
    _at(router, group, ALTER_SHARE_OFFSETS, {"group_id": group, "topics": entries}, _check_reset)


def delete(router: RequestRouter, group: str) -> None:
    """Delete a group without members, and what it has done."""
    _at(router, group, DELETE_GROUPS, {"groups_names": (group,)}, _check_deleted)


def configure(router: RequestRouter, group: str, changes: Mapping[str, str | None]) -> None:
    """Set settings of a group, which need not exist; None removes one."""
    alter_settings(router, group, changes, resource_type=GROUP)


def _at(router: RequestRouter, group: str, api: ClientApi, fields: dict[str, Any], read: Any) -> Any:
    return router.at_coordinator(f"share group {group}", Coordinated.GROUP, group, plain(api, fields), read)


def _members(answer: Answer) -> tuple[str, tuple[ShareMember, ...]]:
    [group] = answer.message().groups
    if group.error_code:
        raise of_code(group.error_code, group.error_message or "")
    members = tuple(
        ShareMember(
            each.member_id,
            each.client_id,
            each.client_host.removeprefix("/"),
            tuple(
                TopicPartition(topic.topic_name, index)
                for topic in each.assignment.topic_partitions
                for index in topic.partitions
            ),
        )
        for each in group.members
    )
    return group.group_state, members


def _places(answer: Answer) -> tuple[SharePlace, ...]:
    [group] = answer.message().groups
    if group.error_code:
        raise of_code(group.error_code, group.error_message or "")
    found = []
    for topic in group.topics:
        for part in topic.partitions:
            if part.error_code:
                raise partition_error(topic.topic_name, part.partition_index, part.error_code)
            place = TopicPartition(topic.topic_name, part.partition_index)
            found.append(SharePlace(place, part.start_offset, getattr(part, "lag", -1)))
    return tuple(sorted(found))


def _check_reset(answer: Answer) -> None:
    response = answer.message()
    if response.error_code:
        raise of_code(response.error_code, response.error_message or "")
    for topic in response.responses:
        for part in topic.partitions:
            if part.error_code:
                raise partition_error(topic.topic_name, part.partition_index, part.error_code)


def _check_deleted(answer: Answer) -> None:
    for each in answer.message().results:
        check(each.error_code)
