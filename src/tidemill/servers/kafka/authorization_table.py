"""What each Kafka API checks: operation and resource type, by API key.

The handlers make the checks with `call.check` and `call.allows`. This table says the same for readers: the page
docs/reference/authorization.md is made from it. A test compares it with the checks that the handlers make. An API
without a row fails a test. Brokers of the cluster, which prove that they know its secret, are not checked.
"""

from tidemill.security.core.api_rights import ApiRight, ApiRights, api_rights
from tidemill.security.core.resources import Operation, ResourceType

_TOPIC, _GROUP, _CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
_TRANSACTIONAL_ID = ResourceType.TRANSACTIONAL_ID


_READ_GROUP = api_rights((Operation.READ, _GROUP))
_ANY_CLUSTER_RIGHT = "a right on the cluster is enough for every topic"
_ONLY_BROKERS = "only brokers of the cluster may send it"
_BEFORE_LOGIN = "part of the login"

AUTHORIZATION: dict[int, ApiRights] = {
    0: api_rights(
        (Operation.WRITE, _TOPIC), ApiRight(Operation.WRITE, _TRANSACTIONAL_ID, "if the records are transactional")
    ),
    1: api_rights((Operation.READ, _TOPIC), note="only brokers of the cluster may fetch as a replica"),
    2: api_rights((Operation.DESCRIBE, _TOPIC)),
    3: api_rights(
        ApiRight(Operation.DESCRIBE, _TOPIC, "a list of all topics leaves out the others"),
        ApiRight(Operation.CREATE, _CLUSTER, "to create a missing topic; CREATE on the topic is enough"),
        ApiRight(Operation.CREATE, _TOPIC, "to create a missing topic; CREATE on the cluster is enough"),
        ApiRight(Operation.DESCRIBE, _CLUSTER, "for the authorized operations of the cluster"),
    ),
    8: api_rights((Operation.READ, _GROUP), (Operation.READ, _TOPIC)),
    9: api_rights(
        (Operation.DESCRIBE, _GROUP),
        ApiRight(Operation.DESCRIBE, _TOPIC, "a list of all topics leaves out the others"),
    ),
    10: api_rights(
        ApiRight(Operation.DESCRIBE, _GROUP, "for the coordinator of a group"),
        ApiRight(Operation.DESCRIBE, _TRANSACTIONAL_ID, "for the coordinator of a transactional id"),
        ApiRight(Operation.CLUSTER_ACTION, _CLUSTER, "for the coordinator of a share partition"),
    ),
    11: _READ_GROUP,
    12: _READ_GROUP,
    13: _READ_GROUP,
    14: _READ_GROUP,
    15: api_rights((Operation.DESCRIBE, _GROUP)),
    16: api_rights(
        ApiRight(Operation.DESCRIBE, _CLUSTER, "lists every group"),
        ApiRight(Operation.DESCRIBE, _GROUP, "lists the groups that the client may describe"),
    ),
    17: api_rights(note=_BEFORE_LOGIN),
    18: api_rights(note="lists APIs and versions only"),
    19: api_rights(
        ApiRight(Operation.CREATE, _CLUSTER, _ANY_CLUSTER_RIGHT),
        (Operation.CREATE, _TOPIC),
        ApiRight(Operation.DESCRIBE_CONFIGS, _TOPIC, "for the settings in the response"),
    ),
    20: api_rights(
        ApiRight(Operation.DELETE, _CLUSTER, _ANY_CLUSTER_RIGHT),
        (Operation.DELETE, _TOPIC),
        ApiRight(Operation.DESCRIBE, _TOPIC, "for the name of a topic id in the response"),
    ),
    21: api_rights((Operation.DELETE, _TOPIC)),
    22: api_rights(
        ApiRight(Operation.WRITE, _TRANSACTIONAL_ID, "with a transactional id"),
        ApiRight(Operation.IDEMPOTENT_WRITE, _CLUSTER, "without one; WRITE on any topic is enough"),
        ApiRight(Operation.WRITE, _TOPIC, "without one, on at least one topic; IDEMPOTENT_WRITE is enough"),
    ),
    23: api_rights((Operation.DESCRIBE, _TOPIC)),
    24: api_rights(
        (Operation.WRITE, _TRANSACTIONAL_ID), (Operation.WRITE, _TOPIC), note=f"from version 4, {_ONLY_BROKERS}"
    ),
    25: api_rights((Operation.WRITE, _TRANSACTIONAL_ID), (Operation.READ, _GROUP)),
    26: api_rights((Operation.WRITE, _TRANSACTIONAL_ID)),
    27: api_rights(note=_ONLY_BROKERS),
    28: api_rights((Operation.WRITE, _TRANSACTIONAL_ID), (Operation.READ, _GROUP), (Operation.READ, _TOPIC)),
    29: api_rights((Operation.DESCRIBE, _CLUSTER)),
    30: api_rights((Operation.ALTER, _CLUSTER)),
    31: api_rights((Operation.ALTER, _CLUSTER)),
    32: api_rights(
        ApiRight(Operation.DESCRIBE_CONFIGS, _TOPIC, "for topics"),
        ApiRight(Operation.DESCRIBE_CONFIGS, _GROUP, "for groups"),
        ApiRight(Operation.DESCRIBE_CONFIGS, _CLUSTER, "for brokers"),
    ),
    33: api_rights(
        ApiRight(Operation.ALTER_CONFIGS, _TOPIC, "for topics"),
        ApiRight(Operation.ALTER_CONFIGS, _GROUP, "for groups"),
        ApiRight(Operation.ALTER_CONFIGS, _CLUSTER, "for brokers"),
    ),
    35: api_rights((Operation.DESCRIBE, _CLUSTER)),
    36: api_rights(note=_BEFORE_LOGIN),
    37: api_rights((Operation.ALTER, _TOPIC)),
    42: api_rights((Operation.DELETE, _GROUP)),
    43: api_rights((Operation.ALTER, _CLUSTER)),
    44: api_rights(
        ApiRight(Operation.ALTER_CONFIGS, _TOPIC, "for topics"),
        ApiRight(Operation.ALTER_CONFIGS, _GROUP, "for groups"),
        ApiRight(Operation.ALTER_CONFIGS, _CLUSTER, "for brokers"),
    ),
    45: api_rights((Operation.ALTER, _CLUSTER)),
    46: api_rights((Operation.DESCRIBE, _CLUSTER)),
    47: api_rights((Operation.DELETE, _GROUP), (Operation.READ, _TOPIC)),
    48: api_rights((Operation.DESCRIBE_CONFIGS, _CLUSTER)),
    49: api_rights((Operation.ALTER_CONFIGS, _CLUSTER)),
    50: api_rights((Operation.DESCRIBE, _CLUSTER)),
    51: api_rights((Operation.ALTER, _CLUSTER)),
    60: api_rights(ApiRight(Operation.DESCRIBE, _CLUSTER, "for the authorized operations of the cluster")),
    61: api_rights((Operation.READ, _TOPIC)),
    64: api_rights((Operation.ALTER, _CLUSTER)),
    65: api_rights(
        (Operation.DESCRIBE, _TRANSACTIONAL_ID),
        ApiRight(Operation.DESCRIBE, _TOPIC, "for the topics in the response"),
    ),
    66: api_rights(ApiRight(Operation.DESCRIBE, _TRANSACTIONAL_ID, "the response leaves out the others")),
    68: api_rights(
        (Operation.READ, _GROUP),
        ApiRight(Operation.DESCRIBE, _TOPIC, "for topics that the member names; a pattern leaves out the others"),
    ),
    69: api_rights(
        (Operation.DESCRIBE, _GROUP), ApiRight(Operation.DESCRIBE, _TOPIC, "for all topics of the group's members")
    ),
    74: api_rights((Operation.DESCRIBE_CONFIGS, _CLUSTER)),
    75: api_rights(ApiRight(Operation.DESCRIBE, _TOPIC, "a list of all topics leaves out the others")),
    76: api_rights((Operation.READ, _GROUP), (Operation.DESCRIBE, _TOPIC)),
    77: api_rights(
        (Operation.DESCRIBE, _GROUP), ApiRight(Operation.DESCRIBE, _TOPIC, "for all topics of the group's members")
    ),
    78: api_rights((Operation.READ, _GROUP), (Operation.READ, _TOPIC)),
    79: api_rights((Operation.READ, _GROUP), (Operation.READ, _TOPIC)),
    83: api_rights(note=_ONLY_BROKERS),
    84: api_rights(note=_ONLY_BROKERS),
    85: api_rights(note=_ONLY_BROKERS),
    86: api_rights(note=_ONLY_BROKERS),
    87: api_rights(note=_ONLY_BROKERS),
    90: api_rights(
        (Operation.DESCRIBE, _GROUP),
        ApiRight(Operation.DESCRIBE, _TOPIC, "a list of all topics leaves out the others"),
    ),
    91: api_rights(
        (Operation.READ, _GROUP),
        (Operation.READ, _TOPIC),
        ApiRight(Operation.DESCRIBE, _TOPIC, "for the id of the topic in the response"),
    ),
    92: api_rights(
        (Operation.DELETE, _GROUP),
        (Operation.READ, _TOPIC),
        ApiRight(Operation.DESCRIBE, _TOPIC, "for the id of the topic in the response"),
    ),
}
