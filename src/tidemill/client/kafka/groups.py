"""Changes of groups by an administrator: delete a group, delete offsets, and remove a member.

The functions that read a response raise the errors in it.
"""

from collections.abc import Sequence

from tidemill.client.kafka.apis import DELETE_GROUPS, LEAVE_GROUP, OFFSET_DELETE
from tidemill.client.kafka.coordinators import check, partition_error
from tidemill.client.kafka.protocol import Answer, Request, plain
from tidemill.model.errors import of_code


def delete_group(group: str) -> Request:
    """The request that deletes a group without members, and its offsets."""
    return plain(DELETE_GROUPS, {"groups_names": (group,)})


def check_deleted(answer: Answer) -> None:
    """Raise the error of the group."""
    for each in answer.message().results:
        check(each.error_code)


def delete_offsets(group: str, topic: str, partitions: Sequence[int]) -> Request:
    """The request that deletes the offsets of a topic that no member reads."""
    entries = [{"partition_index": index} for index in partitions]
    return plain(OFFSET_DELETE, {"group_id": group, "topics": [{"name": topic, "partitions": entries}]})


def check_offsets_deleted(answer: Answer) -> None:
    """Raise the error of the group, or of the first partition that has one."""
    response = answer.message()
    check(response.error_code)
    for topic in response.topics:
        for part in topic.partitions:
            if part.error_code:
                raise partition_error(topic.name, part.partition_index, part.error_code)


def remove_member(group: str, member_id: str, reason: str) -> Request:
    """The request that removes one member."""
    member = {"member_id": member_id, "group_instance_id": None, "reason": reason}
    return plain(LEAVE_GROUP, {"group_id": group, "members": [member]})


def check_removed(answer: Answer) -> None:
    """Raise the error of the group or of the member."""
    response = answer.message()
    check(response.error_code)
    for each in response.members:
        if each.error_code:
            raise of_code(each.error_code)
