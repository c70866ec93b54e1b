from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ClientRole(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CLIENT_ROLE_CONSUMER: _ClassVar[ClientRole]
    CLIENT_ROLE_PRODUCER: _ClassVar[ClientRole]

class Acks(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ACKS_ALL: _ClassVar[Acks]
    ACKS_LEADER: _ClassVar[Acks]

class Reset(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RESET_EARLIEST: _ClassVar[Reset]
    RESET_LATEST: _ClassVar[Reset]
CLIENT_ROLE_CONSUMER: ClientRole
CLIENT_ROLE_PRODUCER: ClientRole
ACKS_ALL: Acks
ACKS_LEADER: Acks
RESET_EARLIEST: Reset
RESET_LATEST: Reset

class CreateTopicRequest(_message.Message):
    __slots__ = ("name", "partitions", "replication_factor", "settings")
    class SettingsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    REPLICATION_FACTOR_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    name: str
    partitions: int
    replication_factor: int
    settings: _containers.ScalarMap[str, str]
    def __init__(self, name: _Optional[str] = ..., partitions: _Optional[int] = ..., replication_factor: _Optional[int] = ..., settings: _Optional[_Mapping[str, str]] = ...) -> None: ...

class DeleteTopicRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class DeleteTopicReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListTopicsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListTopicsReply(_message.Message):
    __slots__ = ("topics",)
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedCompositeFieldContainer[TopicInfo]
    def __init__(self, topics: _Optional[_Iterable[_Union[TopicInfo, _Mapping]]] = ...) -> None: ...

class TopicInfo(_message.Message):
    __slots__ = ("name", "partitions", "settings")
    class SettingsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    name: str
    partitions: _containers.RepeatedCompositeFieldContainer[PartitionInfo]
    settings: _containers.ScalarMap[str, str]
    def __init__(self, name: _Optional[str] = ..., partitions: _Optional[_Iterable[_Union[PartitionInfo, _Mapping]]] = ..., settings: _Optional[_Mapping[str, str]] = ...) -> None: ...

class PartitionInfo(_message.Message):
    __slots__ = ("partition", "leader", "leader_epoch", "replicas", "in_sync")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    IN_SYNC_FIELD_NUMBER: _ClassVar[int]
    partition: int
    leader: int
    leader_epoch: int
    replicas: _containers.RepeatedScalarFieldContainer[int]
    in_sync: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, partition: _Optional[int] = ..., leader: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., replicas: _Optional[_Iterable[int]] = ..., in_sync: _Optional[_Iterable[int]] = ...) -> None: ...

class GetMetadataRequest(_message.Message):
    __slots__ = ("topics",)
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, topics: _Optional[_Iterable[str]] = ...) -> None: ...

class GetMetadataReply(_message.Message):
    __slots__ = ("cluster_id", "brokers", "topics")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    BROKERS_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    brokers: _containers.RepeatedCompositeFieldContainer[BrokerInfo]
    topics: _containers.RepeatedCompositeFieldContainer[TopicInfo]
    def __init__(self, cluster_id: _Optional[str] = ..., brokers: _Optional[_Iterable[_Union[BrokerInfo, _Mapping]]] = ..., topics: _Optional[_Iterable[_Union[TopicInfo, _Mapping]]] = ...) -> None: ...

class BrokerInfo(_message.Message):
    __slots__ = ("node_id", "address", "rack", "load")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    RACK_FIELD_NUMBER: _ClassVar[int]
    LOAD_FIELD_NUMBER: _ClassVar[int]
    node_id: int
    address: str
    rack: str
    load: BrokerLoad
    def __init__(self, node_id: _Optional[int] = ..., address: _Optional[str] = ..., rack: _Optional[str] = ..., load: _Optional[_Union[BrokerLoad, _Mapping]] = ...) -> None: ...

class BrokerLoad(_message.Message):
    __slots__ = ("level", "requests_per_second", "queue", "loop_delay_ms", "cpu_cores", "flush_ms", "disk_used_share", "clients_round_trip_ms", "peers")
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    REQUESTS_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    LOOP_DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    CPU_CORES_FIELD_NUMBER: _ClassVar[int]
    FLUSH_MS_FIELD_NUMBER: _ClassVar[int]
    DISK_USED_SHARE_FIELD_NUMBER: _ClassVar[int]
    CLIENTS_ROUND_TRIP_MS_FIELD_NUMBER: _ClassVar[int]
    PEERS_FIELD_NUMBER: _ClassVar[int]
    level: str
    requests_per_second: float
    queue: int
    loop_delay_ms: float
    cpu_cores: float
    flush_ms: float
    disk_used_share: float
    clients_round_trip_ms: float
    peers: _containers.RepeatedCompositeFieldContainer[PeerLatency]
    def __init__(self, level: _Optional[str] = ..., requests_per_second: _Optional[float] = ..., queue: _Optional[int] = ..., loop_delay_ms: _Optional[float] = ..., cpu_cores: _Optional[float] = ..., flush_ms: _Optional[float] = ..., disk_used_share: _Optional[float] = ..., clients_round_trip_ms: _Optional[float] = ..., peers: _Optional[_Iterable[_Union[PeerLatency, _Mapping]]] = ...) -> None: ...

class PeerLatency(_message.Message):
    __slots__ = ("node_id", "round_trip_ms", "missing")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    ROUND_TRIP_MS_FIELD_NUMBER: _ClassVar[int]
    MISSING_FIELD_NUMBER: _ClassVar[int]
    node_id: int
    round_trip_ms: float
    missing: bool
    def __init__(self, node_id: _Optional[int] = ..., round_trip_ms: _Optional[float] = ..., missing: _Optional[bool] = ...) -> None: ...

class ChooseBrokersRequest(_message.Message):
    __slots__ = ("topic", "timeline", "client_id", "role")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    TIMELINE_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    topic: str
    timeline: str
    client_id: str
    role: ClientRole
    def __init__(self, topic: _Optional[str] = ..., timeline: _Optional[str] = ..., client_id: _Optional[str] = ..., role: _Optional[_Union[ClientRole, str]] = ...) -> None: ...

class ChooseBrokersReply(_message.Message):
    __slots__ = ("choices", "carries", "move")
    CHOICES_FIELD_NUMBER: _ClassVar[int]
    CARRIES_FIELD_NUMBER: _ClassVar[int]
    MOVE_FIELD_NUMBER: _ClassVar[int]
    choices: _containers.RepeatedCompositeFieldContainer[Choice]
    carries: bool
    move: bool
    def __init__(self, choices: _Optional[_Iterable[_Union[Choice, _Mapping]]] = ..., carries: _Optional[bool] = ..., move: _Optional[bool] = ...) -> None: ...

class Choice(_message.Message):
    __slots__ = ("broker", "weight", "consumers", "state")
    BROKER_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    CONSUMERS_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    broker: BrokerInfo
    weight: int
    consumers: int
    state: str
    def __init__(self, broker: _Optional[_Union[BrokerInfo, _Mapping]] = ..., weight: _Optional[int] = ..., consumers: _Optional[int] = ..., state: _Optional[str] = ...) -> None: ...

class Header(_message.Message):
    __slots__ = ("key", "value")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    key: str
    value: bytes
    def __init__(self, key: _Optional[str] = ..., value: _Optional[bytes] = ...) -> None: ...

class Record(_message.Message):
    __slots__ = ("key", "value", "headers", "timestamp_ms", "offset")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    value: bytes
    headers: _containers.RepeatedCompositeFieldContainer[Header]
    timestamp_ms: int
    offset: int
    def __init__(self, key: _Optional[bytes] = ..., value: _Optional[bytes] = ..., headers: _Optional[_Iterable[_Union[Header, _Mapping]]] = ..., timestamp_ms: _Optional[int] = ..., offset: _Optional[int] = ...) -> None: ...

class InitProducerRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class InitProducerReply(_message.Message):
    __slots__ = ("producer_id", "producer_epoch")
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    producer_id: int
    producer_epoch: int
    def __init__(self, producer_id: _Optional[int] = ..., producer_epoch: _Optional[int] = ...) -> None: ...

class ProduceRequest(_message.Message):
    __slots__ = ("topic", "acks", "batches")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    ACKS_FIELD_NUMBER: _ClassVar[int]
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    topic: str
    acks: Acks
    batches: _containers.RepeatedCompositeFieldContainer[Batch]
    def __init__(self, topic: _Optional[str] = ..., acks: _Optional[_Union[Acks, str]] = ..., batches: _Optional[_Iterable[_Union[Batch, _Mapping]]] = ...) -> None: ...

class Batch(_message.Message):
    __slots__ = ("partition", "records", "sequence")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    partition: int
    records: _containers.RepeatedCompositeFieldContainer[Record]
    sequence: Sequence
    def __init__(self, partition: _Optional[int] = ..., records: _Optional[_Iterable[_Union[Record, _Mapping]]] = ..., sequence: _Optional[_Union[Sequence, _Mapping]] = ...) -> None: ...

class Sequence(_message.Message):
    __slots__ = ("producer_id", "producer_epoch", "first")
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    producer_id: int
    producer_epoch: int
    first: int
    def __init__(self, producer_id: _Optional[int] = ..., producer_epoch: _Optional[int] = ..., first: _Optional[int] = ...) -> None: ...

class ProduceReply(_message.Message):
    __slots__ = ("outcomes",)
    OUTCOMES_FIELD_NUMBER: _ClassVar[int]
    outcomes: _containers.RepeatedCompositeFieldContainer[Produced]
    def __init__(self, outcomes: _Optional[_Iterable[_Union[Produced, _Mapping]]] = ...) -> None: ...

class Produced(_message.Message):
    __slots__ = ("partition", "base_offset", "append_time_ms", "error", "reason")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    BASE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    APPEND_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    partition: int
    base_offset: int
    append_time_ms: int
    error: str
    reason: str
    def __init__(self, partition: _Optional[int] = ..., base_offset: _Optional[int] = ..., append_time_ms: _Optional[int] = ..., error: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class Position(_message.Message):
    __slots__ = ("topic", "partition", "offset")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    offset: int
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., offset: _Optional[int] = ...) -> None: ...

class SubscribeRequest(_message.Message):
    __slots__ = ("group", "topics", "member_id", "client_id", "rack", "rebalance_timeout_ms", "reset")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    RACK_FIELD_NUMBER: _ClassVar[int]
    REBALANCE_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    RESET_FIELD_NUMBER: _ClassVar[int]
    group: str
    topics: _containers.RepeatedScalarFieldContainer[str]
    member_id: str
    client_id: str
    rack: str
    rebalance_timeout_ms: int
    reset: Reset
    def __init__(self, group: _Optional[str] = ..., topics: _Optional[_Iterable[str]] = ..., member_id: _Optional[str] = ..., client_id: _Optional[str] = ..., rack: _Optional[str] = ..., rebalance_timeout_ms: _Optional[int] = ..., reset: _Optional[_Union[Reset, str]] = ...) -> None: ...

class SubscribeReply(_message.Message):
    __slots__ = ("member_id", "member_epoch", "assigned")
    MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    MEMBER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    ASSIGNED_FIELD_NUMBER: _ClassVar[int]
    member_id: str
    member_epoch: int
    assigned: _containers.RepeatedCompositeFieldContainer[Position]
    def __init__(self, member_id: _Optional[str] = ..., member_epoch: _Optional[int] = ..., assigned: _Optional[_Iterable[_Union[Position, _Mapping]]] = ...) -> None: ...

class PollRequest(_message.Message):
    __slots__ = ("group", "topics", "member_id", "member_epoch", "client_id", "rack", "rebalance_timeout_ms", "reset", "positions", "max_records", "max_wait_ms")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    MEMBER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    RACK_FIELD_NUMBER: _ClassVar[int]
    REBALANCE_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    RESET_FIELD_NUMBER: _ClassVar[int]
    POSITIONS_FIELD_NUMBER: _ClassVar[int]
    MAX_RECORDS_FIELD_NUMBER: _ClassVar[int]
    MAX_WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    group: str
    topics: _containers.RepeatedScalarFieldContainer[str]
    member_id: str
    member_epoch: int
    client_id: str
    rack: str
    rebalance_timeout_ms: int
    reset: Reset
    positions: _containers.RepeatedCompositeFieldContainer[Position]
    max_records: int
    max_wait_ms: int
    def __init__(self, group: _Optional[str] = ..., topics: _Optional[_Iterable[str]] = ..., member_id: _Optional[str] = ..., member_epoch: _Optional[int] = ..., client_id: _Optional[str] = ..., rack: _Optional[str] = ..., rebalance_timeout_ms: _Optional[int] = ..., reset: _Optional[_Union[Reset, str]] = ..., positions: _Optional[_Iterable[_Union[Position, _Mapping]]] = ..., max_records: _Optional[int] = ..., max_wait_ms: _Optional[int] = ...) -> None: ...

class PollReply(_message.Message):
    __slots__ = ("member_epoch", "rebalance", "assigned", "partitions", "move")
    MEMBER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    REBALANCE_FIELD_NUMBER: _ClassVar[int]
    ASSIGNED_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    MOVE_FIELD_NUMBER: _ClassVar[int]
    member_epoch: int
    rebalance: bool
    assigned: _containers.RepeatedCompositeFieldContainer[Position]
    partitions: _containers.RepeatedCompositeFieldContainer[PartitionRecords]
    move: MoveHint
    def __init__(self, member_epoch: _Optional[int] = ..., rebalance: _Optional[bool] = ..., assigned: _Optional[_Iterable[_Union[Position, _Mapping]]] = ..., partitions: _Optional[_Iterable[_Union[PartitionRecords, _Mapping]]] = ..., move: _Optional[_Union[MoveHint, _Mapping]] = ...) -> None: ...

class MoveHint(_message.Message):
    __slots__ = ("addresses", "reason", "window_ms")
    ADDRESSES_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    WINDOW_MS_FIELD_NUMBER: _ClassVar[int]
    addresses: _containers.RepeatedScalarFieldContainer[str]
    reason: str
    window_ms: int
    def __init__(self, addresses: _Optional[_Iterable[str]] = ..., reason: _Optional[str] = ..., window_ms: _Optional[int] = ...) -> None: ...

class PartitionRecords(_message.Message):
    __slots__ = ("topic", "partition", "records", "next_offset", "high_watermark", "error", "reason")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    records: _containers.RepeatedCompositeFieldContainer[Record]
    next_offset: int
    high_watermark: int
    error: str
    reason: str
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., records: _Optional[_Iterable[_Union[Record, _Mapping]]] = ..., next_offset: _Optional[int] = ..., high_watermark: _Optional[int] = ..., error: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class CommitRequest(_message.Message):
    __slots__ = ("group", "member_id", "member_epoch", "offsets")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    MEMBER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    group: str
    member_id: str
    member_epoch: int
    offsets: _containers.RepeatedCompositeFieldContainer[Position]
    def __init__(self, group: _Optional[str] = ..., member_id: _Optional[str] = ..., member_epoch: _Optional[int] = ..., offsets: _Optional[_Iterable[_Union[Position, _Mapping]]] = ...) -> None: ...

class CommitReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class UnsubscribeRequest(_message.Message):
    __slots__ = ("group", "member_id")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    group: str
    member_id: str
    def __init__(self, group: _Optional[str] = ..., member_id: _Optional[str] = ...) -> None: ...

class UnsubscribeReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ConsumeRequest(_message.Message):
    __slots__ = ("topic", "partition", "offset", "max_records", "max_wait_ms", "uncommitted")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    MAX_RECORDS_FIELD_NUMBER: _ClassVar[int]
    MAX_WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    UNCOMMITTED_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    offset: int
    max_records: int
    max_wait_ms: int
    uncommitted: bool
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., offset: _Optional[int] = ..., max_records: _Optional[int] = ..., max_wait_ms: _Optional[int] = ..., uncommitted: _Optional[bool] = ...) -> None: ...

class ConsumeReply(_message.Message):
    __slots__ = ("records", "next_offset", "high_watermark", "log_start_offset")
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    LOG_START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    records: _containers.RepeatedCompositeFieldContainer[Record]
    next_offset: int
    high_watermark: int
    log_start_offset: int
    def __init__(self, records: _Optional[_Iterable[_Union[Record, _Mapping]]] = ..., next_offset: _Optional[int] = ..., high_watermark: _Optional[int] = ..., log_start_offset: _Optional[int] = ...) -> None: ...

class ReplicateRequest(_message.Message):
    __slots__ = ("topics",)
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, topics: _Optional[_Iterable[str]] = ...) -> None: ...

class ReplicateReply(_message.Message):
    __slots__ = ("partitions",)
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    partitions: _containers.RepeatedCompositeFieldContainer[ReplicaStatus]
    def __init__(self, partitions: _Optional[_Iterable[_Union[ReplicaStatus, _Mapping]]] = ...) -> None: ...

class ReplicaStatus(_message.Message):
    __slots__ = ("topic", "partition", "log_start_offset", "high_watermark", "log_end_offset")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    LOG_START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    LOG_END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: PartitionInfo
    log_start_offset: int
    high_watermark: int
    log_end_offset: int
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[_Union[PartitionInfo, _Mapping]] = ..., log_start_offset: _Optional[int] = ..., high_watermark: _Optional[int] = ..., log_end_offset: _Optional[int] = ...) -> None: ...
