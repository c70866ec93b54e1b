"""The API table: every Kafka API that this server serves, with its key, name, versions and handler.

To add an API, write its handler in the module of its family and add one row here. ApiVersions lists these rows.
"""

from collections.abc import Iterable
from random import Random

from tidemill.model.errors import ProtocolViolation
from tidemill.servers.kafka import (
    acls,
    api_versions,
    authentication,
    client_quotas,
    cluster,
    configs,
    consumer_groups,
    group_offsets,
    groups,
    log_offsets,
    metadata,
    scram_credentials,
    share_groups,
    share_offsets,
    share_state,
    topics,
    transaction_admin,
    transactions,
)
from tidemill.servers.kafka.api import Api, Feature
from tidemill.servers.kafka.fetch import FetchHandler
from tidemill.servers.kafka.fetch_sessions import SESSION_ID_MAX, FetchSessions
from tidemill.servers.kafka.produce import produce
from tidemill.servers.kafka.share_fetch import ShareHandler
from tidemill.wire.kafka.fetch import read_fetch
from tidemill.wire.kafka.produce import read_produce

FEATURES = (
    Feature("group.version", 0, 1, 1),
    Feature("share.version", 0, 1, 1),
    Feature("transaction.version", 0, 2, 2),
)


class ApiTable:
    """The APIs of one server by key, and the features that ApiVersions names."""

    def __init__(self, apis: Iterable[Api], features: Iterable[Feature] = ()) -> None:
        self.by_key: dict[int, Api] = {}
        for api in apis:
            if api.key in self.by_key:
                raise ValueError(f"two handlers for API {api.key}")
            self.by_key[api.key] = api
        self.features = tuple(features)

    def find(self, key: int, version: int) -> Api:
        """The API that serves a request; no response can name an unknown key or version, so the connection closes."""
        api = self.by_key.get(key)
        if api is None:
            raise ProtocolViolation(f"API key {key} is not supported; ApiVersions lists the supported keys")
        if not api.serves(version):
            raise ProtocolViolation(
                f"{api.name} version {version} is not supported; ApiVersions lists the supported versions"
            )
        return api

    def listed(self) -> list[Api]:
        """The rows of ApiVersions, by key."""
        return sorted(self.by_key.values(), key=lambda api: api.key)


def standard_table() -> ApiTable:
    """Every API; Metadata and Fetch keep state, so each server has its own table."""
    rng = Random()  # noqa: S311 - session ids are not secrets
    fetch = FetchHandler(FetchSessions(lambda: rng.randrange(1, SESSION_ID_MAX)))
    shares = ShareHandler()
    describe_metadata = metadata.MetadataHandler()
    apis: list[Api] = [
        # librdkafka before 2.11.1 stops compressing when Produce 0 is not listed (KAFKA-18659).
        Api(0, "Produce", (0, 13), produce, served_from=3, read=read_produce, pipelined=True),
        Api(1, "Fetch", (4, 17), fetch.handle, read=read_fetch, abandoned=True),
        Api(2, "ListOffsets", (1, 10), log_offsets.list_offsets),
        Api(3, "Metadata", (0, 13), describe_metadata.handle),
        Api(8, "OffsetCommit", (2, 10), group_offsets.offset_commit),
        Api(9, "OffsetFetch", (1, 10), group_offsets.offset_fetch),
        Api(10, "FindCoordinator", (0, 6), cluster.find_coordinator),
        Api(11, "JoinGroup", (0, 9), groups.join_group, parked=True),
        Api(12, "Heartbeat", (0, 4), groups.heartbeat),
        Api(13, "LeaveGroup", (0, 5), groups.leave_group),
        Api(14, "SyncGroup", (0, 5), groups.sync_group, parked=True),
        Api(15, "DescribeGroups", (0, 6), groups.describe_groups),
        Api(16, "ListGroups", (0, 5), groups.list_groups),
        Api(17, "SaslHandshake", (0, 1), authentication.sasl_handshake, served_from=1),
        Api(18, "ApiVersions", (0, 4), api_versions.api_versions),
        Api(19, "CreateTopics", (2, 7), topics.create_topics),
        Api(20, "DeleteTopics", (1, 6), topics.delete_topics),
        Api(21, "DeleteRecords", (0, 2), log_offsets.delete_records),
        Api(22, "InitProducerId", (0, 5), transactions.init_producer_id),
        Api(23, "OffsetForLeaderEpoch", (2, 4), log_offsets.offset_for_leader_epoch),
        Api(24, "AddPartitionsToTxn", (0, 5), transactions.add_partitions_to_txn),
        Api(25, "AddOffsetsToTxn", (0, 4), transactions.add_offsets_to_txn),
        Api(26, "EndTxn", (0, 5), transactions.end_txn),
        Api(27, "WriteTxnMarkers", (1, 1), transactions.write_txn_markers),
        Api(28, "TxnOffsetCommit", (0, 5), transactions.txn_offset_commit),
        Api(29, "DescribeAcls", (1, 3), acls.describe_acls),
        Api(30, "CreateAcls", (1, 3), acls.create_acls),
        Api(31, "DeleteAcls", (1, 3), acls.delete_acls),
        Api(32, "DescribeConfigs", (1, 4), configs.describe_configs),
        Api(33, "AlterConfigs", (0, 2), configs.alter_configs),
        Api(35, "DescribeLogDirs", (1, 4), cluster.describe_log_dirs),
        Api(36, "SaslAuthenticate", (0, 2), authentication.sasl_authenticate),
        Api(37, "CreatePartitions", (0, 3), topics.create_partitions),
        Api(42, "DeleteGroups", (0, 2), groups.delete_groups),
        Api(43, "ElectLeaders", (0, 2), cluster.elect_leaders),
        Api(44, "IncrementalAlterConfigs", (0, 1), configs.incremental_alter_configs),
        Api(45, "AlterPartitionReassignments", (0, 1), cluster.alter_partition_reassignments),
        Api(46, "ListPartitionReassignments", (0, 0), cluster.list_partition_reassignments),
        Api(47, "OffsetDelete", (0, 0), group_offsets.offset_delete),
        Api(48, "DescribeClientQuotas", (0, 1), client_quotas.describe_client_quotas),
        Api(49, "AlterClientQuotas", (0, 1), client_quotas.alter_client_quotas),
        Api(50, "DescribeUserScramCredentials", (0, 0), scram_credentials.describe_user_scram_credentials),
        Api(51, "AlterUserScramCredentials", (0, 0), scram_credentials.alter_user_scram_credentials),
        Api(60, "DescribeCluster", (0, 2), cluster.describe_cluster),
        Api(61, "DescribeProducers", (0, 0), transaction_admin.describe_producers),
        Api(64, "UnregisterBroker", (0, 0), cluster.unregister_broker),
        Api(65, "DescribeTransactions", (0, 0), transaction_admin.describe_transactions),
        Api(66, "ListTransactions", (0, 1), transaction_admin.list_transactions),
        Api(68, "ConsumerGroupHeartbeat", (0, 1), consumer_groups.consumer_group_heartbeat),
        Api(69, "ConsumerGroupDescribe", (0, 1), consumer_groups.consumer_group_describe),
        Api(74, "ListConfigResources", (0, 1), configs.list_config_resources),
        Api(75, "DescribeTopicPartitions", (0, 0), metadata.describe_topic_partitions),
        Api(76, "ShareGroupHeartbeat", (1, 1), share_groups.share_group_heartbeat),
        Api(77, "ShareGroupDescribe", (1, 1), share_groups.share_group_describe),
        Api(78, "ShareFetch", (1, 2), shares.fetch, abandoned=True),
        Api(79, "ShareAcknowledge", (1, 2), shares.acknowledge),
        Api(83, "InitializeShareGroupState", (0, 0), share_state.initialize_share_group_state),
        Api(84, "ReadShareGroupState", (0, 0), share_state.read_share_group_state),
        Api(85, "WriteShareGroupState", (0, 1), share_state.write_share_group_state),
        Api(86, "DeleteShareGroupState", (0, 0), share_state.delete_share_group_state),
        Api(87, "ReadShareGroupStateSummary", (0, 1), share_state.read_share_group_state_summary),
        Api(90, "DescribeShareGroupOffsets", (0, 1), share_offsets.describe_share_group_offsets),
        Api(91, "AlterShareGroupOffsets", (0, 0), share_offsets.alter_share_group_offsets),
        Api(92, "DeleteShareGroupOffsets", (0, 0), share_offsets.delete_share_group_offsets),
    ]
    return ApiTable(apis, FEATURES)
