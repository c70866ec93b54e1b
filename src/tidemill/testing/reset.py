"""Resets a broker through its Kafka and gRPC servers, so that it works for a broker in any process."""

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

TIMEOUT_S = 30.0
POLL_S = 0.01
DELETING = "deleting"


def reset(bootstrap_servers: str) -> None:
    """Delete every topic that is not internal, and every group without members."""
    from confluent_kafka.admin import AdminClient  # noqa: PLC0415 -- only tests that reset need a client

    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
    _delete_groups(admin)
    names = [name for name in admin.list_topics(timeout=TIMEOUT_S).topics if not name.startswith("__")]
    if names:
        for future in admin.delete_topics(names, operation_timeout=TIMEOUT_S).values():
            future.result(TIMEOUT_S)


def reset_timelines(grpc: str) -> None:
    """Delete every timeline with its messages, and wait until the background deletion has finished."""
    from tidemill.client.timelines import Timeline  # noqa: PLC0415 -- as above

    deadline = time.monotonic() + TIMEOUT_S
    with Timeline(grpc, "any") as client:
        for name in [found.name for found in client.timelines() if found.state != DELETING]:
            with Timeline(grpc, name) as timeline:
                timeline.delete()
        while client.timelines():
            if time.monotonic() > deadline:
                raise TimeoutError(f"the broker did not delete all timelines within {TIMEOUT_S:g} s")
            time.sleep(POLL_S)


def _delete_groups(admin: "AdminClient") -> None:
    from confluent_kafka import KafkaError, KafkaException  # noqa: PLC0415 -- as above

    groups = [group.group_id for group in admin.list_consumer_groups().result(TIMEOUT_S).valid]
    if not groups:
        return
    for future in admin.delete_consumer_groups(groups, request_timeout=TIMEOUT_S).values():
        try:
            future.result(TIMEOUT_S)
        except KafkaException as error:
            if error.args[0].code() not in {KafkaError.NON_EMPTY_GROUP, KafkaError.GROUP_ID_NOT_FOUND}:
                raise
