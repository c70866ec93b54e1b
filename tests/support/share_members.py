"""A real share consumer that has acquired records, for tests of what operators see."""

from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import AcknowledgeType, Message, ShareConsumer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from tests.support.waiting import eventually

WAIT_S = 30.0


@contextmanager
def share_member(bootstrap: str, group: str, topic: str, count: int) -> Iterator[tuple[ShareConsumer, list[Message]]]:
    """A member of a share group that begins at the first record, and the records of one poll: at least `count`."""
    first = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=[first])
    admin = AdminClient({"bootstrap.servers": bootstrap})  # its futures fail when it is destroyed
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(WAIT_S)
    member = ShareConsumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "client.id": f"{group}-member",
            "share.acknowledgement.mode": "explicit",
        }
    )
    member.subscribe([topic])
    held: list[Message] = []

    def has_enough() -> bool:
        for message in held:  # the client polls again only when it has acknowledged everything
            member.acknowledge(message, AcknowledgeType.RELEASE)
        held[:] = member.poll(timeout=0.2)
        return len(held) >= count

    try:
        eventually(has_enough, "the share consumer gets the records")
        yield member, held
    finally:
        member.close()
