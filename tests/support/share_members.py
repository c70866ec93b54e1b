"""A real share consumer that has acquired records, for tests of what operators see."""

from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import Message, ShareConsumer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from tests.support.waiting import eventually

WAIT_S = 30.0


@contextmanager
def share_member(bootstrap: str, group: str, topic: str, count: int) -> Iterator[tuple[ShareConsumer, list[Message]]]:
    """A member of a share group that begins at the first record, and the records that it holds: at least `count`."""
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
        held.extend(member.poll(timeout=0.2) if len(held) < count else ())
        return len(held) >= count

    try:
        eventually(has_enough, "the share consumer gets the records")
        yield member, held
    finally:
        member.close()
