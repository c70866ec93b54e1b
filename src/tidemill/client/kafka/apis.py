"""The APIs that this client uses, with the range of versions that it supports.

The highest version is not always the newest. The client stops before a version that changes rules and not only fields.
Fetch 13 and Produce 13 name topics by id. Produce 12 and EndTxn 5 belong to transactions whose epoch grows with each of
them (KIP-890). FindCoordinator 4 and OffsetFetch 8 ask for many groups at once. Brokers from Kafka 2.1 to 4.x support
the remaining versions.
"""

from typing import NamedTuple


class ClientApi(NamedTuple):
    """An API with the lowest and highest version that this client supports."""

    key: int
    low: int
    high: int


PRODUCE = ClientApi(0, 3, 11)
FETCH = ClientApi(1, 4, 12)
LIST_OFFSETS = ClientApi(2, 1, 7)
METADATA = ClientApi(3, 1, 12)
OFFSET_COMMIT = ClientApi(8, 2, 8)
OFFSET_FETCH = ClientApi(9, 1, 7)
FIND_COORDINATOR = ClientApi(10, 1, 3)
LEAVE_GROUP = ClientApi(13, 3, 5)
LIST_GROUPS = ClientApi(16, 5, 5)
SASL_HANDSHAKE = ClientApi(17, 1, 1)
API_VERSIONS = ClientApi(18, 0, 0)
CREATE_TOPICS = ClientApi(19, 2, 7)
DELETE_TOPICS = ClientApi(20, 1, 5)
DELETE_RECORDS = ClientApi(21, 0, 2)
INIT_PRODUCER_ID = ClientApi(22, 0, 4)
ADD_PARTITIONS_TO_TXN = ClientApi(24, 0, 3)
ADD_OFFSETS_TO_TXN = ClientApi(25, 0, 3)
END_TXN = ClientApi(26, 0, 3)
TXN_OFFSET_COMMIT = ClientApi(28, 0, 3)
DESCRIBE_ACLS = ClientApi(29, 1, 3)
CREATE_ACLS = ClientApi(30, 1, 3)
DELETE_ACLS = ClientApi(31, 1, 3)
DESCRIBE_CONFIGS = ClientApi(32, 1, 4)
DESCRIBE_LOG_DIRS = ClientApi(35, 1, 4)
SASL_AUTHENTICATE = ClientApi(36, 0, 2)
CREATE_PARTITIONS = ClientApi(37, 0, 3)
DELETE_GROUPS = ClientApi(42, 0, 2)
ELECT_LEADERS = ClientApi(43, 0, 2)
INCREMENTAL_ALTER_CONFIGS = ClientApi(44, 0, 1)
ALTER_PARTITION_REASSIGNMENTS = ClientApi(45, 0, 0)
LIST_PARTITION_REASSIGNMENTS = ClientApi(46, 0, 0)
OFFSET_DELETE = ClientApi(47, 0, 0)
DESCRIBE_CLIENT_QUOTAS = ClientApi(48, 0, 1)
ALTER_CLIENT_QUOTAS = ClientApi(49, 0, 1)
DESCRIBE_USER_SCRAM_CREDENTIALS = ClientApi(50, 0, 0)
ALTER_USER_SCRAM_CREDENTIALS = ClientApi(51, 0, 0)
DESCRIBE_CLUSTER = ClientApi(60, 0, 2)
DESCRIBE_PRODUCERS = ClientApi(61, 0, 0)
UNREGISTER_BROKER = ClientApi(64, 0, 0)
LIST_TRANSACTIONS = ClientApi(66, 0, 1)
DESCRIBE_SHARE_GROUP = ClientApi(77, 1, 1)
DESCRIBE_SHARE_OFFSETS = ClientApi(90, 0, 1)
ALTER_SHARE_OFFSETS = ClientApi(91, 0, 0)
