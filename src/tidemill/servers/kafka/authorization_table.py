"""What each Kafka API checks: operation and resource type, by API key.

The handlers make the checks with `call.check` and `call.allows`. This table says the same for readers: the page
docs/reference/authorization.md is made from it. A test compares it with the checks that the handlers make. An API
without a row fails a test. Brokers of the cluster, which prove that they know its secret, are not checked.
"""

from typing import NamedTuple

from tidemill.security.core.resources import Operation, ResourceType

_TOPIC, _GROUP, _CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
_TRANSACTIONAL_ID = ResourceType.TRANSACTIONAL_ID


class ApiRight(NamedTuple):
    """One check of an API."""

    operation: Operation
    resource_type: ResourceType
    note: str = ""


class ApiRights(NamedTuple):
    """All checks of an API; none: `note` says why."""

    rights: tuple[ApiRight, ...]
    note: str = ""


def _rights(*rights: ApiRight | tuple[Operation, ResourceType], note: str = "") -> ApiRights:
    return ApiRights(tuple(ApiRight(*right) for right in rights), note)


_READ_GROUP = _rights((Operation.READ, _GROUP))
_ANY_CLUSTER_RIGHT = "a right on the cluster is enough for every topic"
_ONLY_BROKERS = "only brokers of the cluster may send it"
_BEFORE_LOGIN = "part of the login"

AUTHORIZATION: dict[int, ApiRights] = {
    0: _rights(
        (Operation.WRITE, _TOPIC), ApiRight(Operation.WRITE, _TRANSACTIONAL_ID, "if the records are transactional")
    ),
    1: _rights((Operation.READ, _TOPIC), note="only brokers of the cluster may fetch as a replica"),
    2: _rights((Operation.DESCRIBE, _TOPIC)),
    3: _rights(
        ApiRight(Operation.DESCRIBE, _TOPIC, "a list of all topics leaves out the others"),
        ApiRight(Operation.CREATE, _CLUSTER, "to create a missing topic; CREATE on the topic is enough"),
        ApiRight(Operation.CREATE, _TOPIC, "to create a missing topic; CREATE on the cluster is enough"),
        ApiRight(Operation.DESCRIBE, _CLUSTER, "for the authorized operations of the cluster"),
    ),
    8: _rights((Operation.READ, _GROUP), (Operation.READ, _TOPIC)),
    9: _rights(
        (Operation.DESCRIBE, _GROUP),
        ApiRight(Operation.DESCRIBE, _TOPIC, "a list of all topics leaves out the others"),
    ),
    10: _rights(
        ApiRight(Operation.DESCRIBE, _GROUP, "for the coordinator of a group"),
        ApiRight(Operation.DESCRIBE, _TRANSACTIONAL_ID, "for the coordinator of a transactional id"),
    ),
    11: _READ_GROUP,
    12: _READ_GROUP,
    13: _READ_GROUP,
    14: _READ_GROUP,
    15: _rights((Operation.DESCRIBE, _GROUP)),
    16: _rights(
        ApiRight(Operation.DESCRIBE, _CLUSTER, "lists every group"),
        ApiRight(Operation.DESCRIBE, _GROUP, "lists the groups that the client may describe"),
    ),
    17: _rights(note=_BEFORE_LOGIN),
    18: _rights(note="lists APIs and versions only"),
    19: _rights(
        ApiRight(Operation.CREATE, _CLUSTER, _ANY_CLUSTER_RIGHT),
        (Operation.CREATE, _TOPIC),
        ApiRight(Operation.DESCRIBE_CONFIGS, _TOPIC, "for the settings in the response"),
    ),
    20: _rights(
        ApiRight(Operation.DELETE, _CLUSTER, _ANY_CLUSTER_RIGHT),
        (Operation.DELETE, _TOPIC),
        ApiRight(Operation.DESCRIBE, _TOPIC, "for the name of a topic id in the response"),
    ),
    21: _rights((Operation.DELETE, _TOPIC)),
    22: _rights(
        ApiRight(Operation.WRITE, _TRANSACTIONAL_ID, "with a transactional id"),
        ApiRight(Operation.IDEMPOTENT_WRITE, _CLUSTER, "without one; WRITE on any topic is enough"),
        ApiRight(Operation.WRITE, _TOPIC, "without one, on at least one topic; IDEMPOTENT_WRITE is enough"),
    ),
    23: _rights((Operation.DESCRIBE, _TOPIC)),
    24: _rights(
        (Operation.WRITE, _TRANSACTIONAL_ID), (Operation.WRITE, _TOPIC), note=f"from version 4, {_ONLY_BROKERS}"
    ),
    25: _rights((Operation.WRITE, _TRANSACTIONAL_ID), (Operation.READ, _GROUP)),
    26: _rights((Operation.WRITE, _TRANSACTIONAL_ID)),
    27: _rights(note=_ONLY_BROKERS),
    28: _rights((Operation.WRITE, _TRANSACTIONAL_ID), (Operation.READ, _GROUP), (Operation.READ, _TOPIC)),
    29: _rights((Operation.DESCRIBE, _CLUSTER)),
    30: _rights((Operation.ALTER, _CLUSTER)),
    31: _rights((Operation.ALTER, _CLUSTER)),
    32: _rights(
        ApiRight(Operation.DESCRIBE_CONFIGS, _TOPIC, "for topics"),
        ApiRight(Operation.DESCRIBE_CONFIGS, _CLUSTER, "for brokers"),
    ),
    33: _rights(
        ApiRight(Operation.ALTER_CONFIGS, _TOPIC, "for topics"),
        ApiRight(Operation.ALTER_CONFIGS, _CLUSTER, "for brokers"),
    ),
    35: _rights((Operation.DESCRIBE, _CLUSTER)),
    36: _rights(note=_BEFORE_LOGIN),
    37: _rights((Operation.ALTER, _TOPIC)),
    42: _rights((Operation.DELETE, _GROUP)),
    43: _rights((Operation.ALTER, _CLUSTER)),
    44: _rights(
        ApiRight(Operation.ALTER_CONFIGS, _TOPIC, "for topics"),
        ApiRight(Operation.ALTER_CONFIGS, _CLUSTER, "for brokers"),
    ),
    45: _rights((Operation.ALTER, _CLUSTER)),
    46: _rights((Operation.DESCRIBE, _CLUSTER)),
    47: _rights((Operation.DELETE, _GROUP), (Operation.READ, _TOPIC)),
    48: _rights((Operation.DESCRIBE_CONFIGS, _CLUSTER)),
    49: _rights((Operation.ALTER_CONFIGS, _CLUSTER)),
    50: _rights((Operation.DESCRIBE, _CLUSTER)),
    51: _rights((Operation.ALTER, _CLUSTER)),
    60: _rights(ApiRight(Operation.DESCRIBE, _CLUSTER, "for the authorized operations of the cluster")),
    61: _rights((Operation.READ, _TOPIC)),
    64: _rights((Operation.ALTER, _CLUSTER)),
    65: _rights(
        (Operation.DESCRIBE, _TRANSACTIONAL_ID),
        ApiRight(Operation.DESCRIBE, _TOPIC, "for the topics in the response"),
    ),
    66: _rights(ApiRight(Operation.DESCRIBE, _TRANSACTIONAL_ID, "the response leaves out the others")),
    68: _rights(
        (Operation.READ, _GROUP), ApiRight(Operation.DESCRIBE, _TOPIC, "for topics that the member subscribes to")
    ),
    69: _rights(
        (Operation.DESCRIBE, _GROUP), ApiRight(Operation.DESCRIBE, _TOPIC, "for all topics of the group's members")
    ),
    75: _rights(ApiRight(Operation.DESCRIBE, _TOPIC, "a list of all topics leaves out the others")),
}
