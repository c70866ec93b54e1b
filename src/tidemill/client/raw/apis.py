"""The APIs this client speaks and the versions it knows of each.

The highest version is not always the newest. Where a later version changes the rules and not only the fields, this
client stops before it: Fetch 13 and Produce 13 name topics by id, Produce 12 and EndTxn 5 belong to transactions whose
epoch grows with each of them (KIP-890), FindCoordinator 4 and OffsetFetch 8 ask for many groups at once. Brokers from
Kafka 2.1 to 4.x serve what remains.
"""

from typing import NamedTuple


class Api(NamedTuple):
    """An API with the lowest and highest version that this client knows."""

    key: int
    low: int
    high: int


PRODUCE = Api(0, 3, 11)
FETCH = Api(1, 4, 12)
LIST_OFFSETS = Api(2, 1, 7)
METADATA = Api(3, 1, 12)
OFFSET_COMMIT = Api(8, 2, 8)
OFFSET_FETCH = Api(9, 1, 7)
FIND_COORDINATOR = Api(10, 1, 3)
SASL_HANDSHAKE = Api(17, 1, 1)
API_VERSIONS = Api(18, 0, 0)
INIT_PRODUCER_ID = Api(22, 0, 4)
ADD_PARTITIONS_TO_TXN = Api(24, 0, 3)
ADD_OFFSETS_TO_TXN = Api(25, 0, 3)
END_TXN = Api(26, 0, 3)
TXN_OFFSET_COMMIT = Api(28, 0, 3)
DESCRIBE_LOG_DIRS = Api(35, 1, 4)
SASL_AUTHENTICATE = Api(36, 0, 2)
ELECT_LEADERS = Api(43, 0, 2)
ALTER_PARTITION_REASSIGNMENTS = Api(45, 0, 0)
LIST_PARTITION_REASSIGNMENTS = Api(46, 0, 0)
DESCRIBE_CLUSTER = Api(60, 0, 2)
UNREGISTER_BROKER = Api(64, 0, 0)
LIST_TRANSACTIONS = Api(66, 0, 1)
