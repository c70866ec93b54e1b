from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Role(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ROLE_PRODUCER: _ClassVar[Role]
    ROLE_CONSUMER: _ClassVar[Role]

class LeaseOrder(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    LEASE_ORDER_LEASE_END: _ClassVar[LeaseOrder]
    LEASE_ORDER_DUE: _ClassVar[LeaseOrder]
    LEASE_ORDER_RANDOM: _ClassVar[LeaseOrder]

class Action(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ACTION_UNSPECIFIED: _ClassVar[Action]
    ACTION_RELEASE: _ClassVar[Action]
    ACTION_EXTEND: _ClassVar[Action]
    ACTION_COMPLETE: _ClassVar[Action]

class Status(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    STATUS_ANY: _ClassVar[Status]
    STATUS_WAITING: _ClassVar[Status]
    STATUS_AVAILABLE: _ClassVar[Status]
    STATUS_LEASED: _ClassVar[Status]
ROLE_PRODUCER: Role
ROLE_CONSUMER: Role
LEASE_ORDER_LEASE_END: LeaseOrder
LEASE_ORDER_DUE: LeaseOrder
LEASE_ORDER_RANDOM: LeaseOrder
ACTION_UNSPECIFIED: Action
ACTION_RELEASE: Action
ACTION_EXTEND: Action
ACTION_COMPLETE: Action
STATUS_ANY: Status
STATUS_WAITING: Status
STATUS_AVAILABLE: Status
STATUS_LEASED: Status

class HandshakeRequest(_message.Message):
    __slots__ = ("role", "timeline", "id", "rack", "lease_ms", "max_in_flight", "holds_back", "order")
    ROLE_FIELD_NUMBER: _ClassVar[int]
    TIMELINE_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    RACK_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    HOLDS_BACK_FIELD_NUMBER: _ClassVar[int]
    ORDER_FIELD_NUMBER: _ClassVar[int]
    role: Role
    timeline: str
    id: str
    rack: str
    lease_ms: int
    max_in_flight: int
    holds_back: bool
    order: LeaseOrder
    def __init__(self, role: _Optional[_Union[Role, str]] = ..., timeline: _Optional[str] = ..., id: _Optional[str] = ..., rack: _Optional[str] = ..., lease_ms: _Optional[int] = ..., max_in_flight: _Optional[int] = ..., holds_back: _Optional[bool] = ..., order: _Optional[_Union[LeaseOrder, str]] = ...) -> None: ...

class HandshakeReply(_message.Message):
    __slots__ = ("session", "now_ms", "timeline", "limits", "clock", "received_us", "answered_us")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    NOW_MS_FIELD_NUMBER: _ClassVar[int]
    TIMELINE_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    CLOCK_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_US_FIELD_NUMBER: _ClassVar[int]
    ANSWERED_US_FIELD_NUMBER: _ClassVar[int]
    session: str
    now_ms: int
    timeline: TimelineInfo
    limits: Limits
    clock: ClockState
    received_us: int
    answered_us: int
    def __init__(self, session: _Optional[str] = ..., now_ms: _Optional[int] = ..., timeline: _Optional[_Union[TimelineInfo, _Mapping]] = ..., limits: _Optional[_Union[Limits, _Mapping]] = ..., clock: _Optional[_Union[ClockState, _Mapping]] = ..., received_us: _Optional[int] = ..., answered_us: _Optional[int] = ...) -> None: ...

class Limits(_message.Message):
    __slots__ = ("schedule_messages_max", "body_bytes_max", "in_flight_max", "operations_max")
    SCHEDULE_MESSAGES_MAX_FIELD_NUMBER: _ClassVar[int]
    BODY_BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    IN_FLIGHT_MAX_FIELD_NUMBER: _ClassVar[int]
    OPERATIONS_MAX_FIELD_NUMBER: _ClassVar[int]
    schedule_messages_max: int
    body_bytes_max: int
    in_flight_max: int
    operations_max: int
    def __init__(self, schedule_messages_max: _Optional[int] = ..., body_bytes_max: _Optional[int] = ..., in_flight_max: _Optional[int] = ..., operations_max: _Optional[int] = ...) -> None: ...

class CreateTimelineRequest(_message.Message):
    __slots__ = ("name", "settings")
    class SettingsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    name: str
    settings: _containers.ScalarMap[str, str]
    def __init__(self, name: _Optional[str] = ..., settings: _Optional[_Mapping[str, str]] = ...) -> None: ...

class AlterTimelineRequest(_message.Message):
    __slots__ = ("name", "settings")
    class SettingsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    name: str
    settings: _containers.ScalarMap[str, str]
    def __init__(self, name: _Optional[str] = ..., settings: _Optional[_Mapping[str, str]] = ...) -> None: ...

class DeleteTimelineRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class DeleteTimelineReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DescribeTimelineRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class ListTimelinesRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListTimelinesReply(_message.Message):
    __slots__ = ("timelines",)
    TIMELINES_FIELD_NUMBER: _ClassVar[int]
    timelines: _containers.RepeatedCompositeFieldContainer[TimelineInfo]
    def __init__(self, timelines: _Optional[_Iterable[_Union[TimelineInfo, _Mapping]]] = ...) -> None: ...

class TimelineInfo(_message.Message):
    __slots__ = ("name", "state", "settings", "consumers", "created", "delivery", "delivery_reason")
    class SettingsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    CONSUMERS_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    DELIVERY_FIELD_NUMBER: _ClassVar[int]
    DELIVERY_REASON_FIELD_NUMBER: _ClassVar[int]
    name: str
    state: str
    settings: _containers.ScalarMap[str, str]
    consumers: int
    created: bool
    delivery: str
    delivery_reason: str
    def __init__(self, name: _Optional[str] = ..., state: _Optional[str] = ..., settings: _Optional[_Mapping[str, str]] = ..., consumers: _Optional[int] = ..., created: _Optional[bool] = ..., delivery: _Optional[str] = ..., delivery_reason: _Optional[str] = ...) -> None: ...

class NewMessage(_message.Message):
    __slots__ = ("body", "due_ms", "id", "key", "recurrence")
    BODY_FIELD_NUMBER: _ClassVar[int]
    DUE_MS_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    RECURRENCE_FIELD_NUMBER: _ClassVar[int]
    body: bytes
    due_ms: int
    id: str
    key: bytes
    recurrence: Recurrence
    def __init__(self, body: _Optional[bytes] = ..., due_ms: _Optional[int] = ..., id: _Optional[str] = ..., key: _Optional[bytes] = ..., recurrence: _Optional[_Union[Recurrence, _Mapping]] = ...) -> None: ...

class Recurrence(_message.Message):
    __slots__ = ("cron", "zone", "every_ms", "missed", "until_ms", "count")
    CRON_FIELD_NUMBER: _ClassVar[int]
    ZONE_FIELD_NUMBER: _ClassVar[int]
    EVERY_MS_FIELD_NUMBER: _ClassVar[int]
    MISSED_FIELD_NUMBER: _ClassVar[int]
    UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    cron: str
    zone: str
    every_ms: int
    missed: str
    until_ms: int
    count: int
    def __init__(self, cron: _Optional[str] = ..., zone: _Optional[str] = ..., every_ms: _Optional[int] = ..., missed: _Optional[str] = ..., until_ms: _Optional[int] = ..., count: _Optional[int] = ...) -> None: ...

class ScheduleRequest(_message.Message):
    __slots__ = ("session", "messages", "measured")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    MEASURED_FIELD_NUMBER: _ClassVar[int]
    session: str
    messages: _containers.RepeatedCompositeFieldContainer[NewMessage]
    measured: ClockMeasurement
    def __init__(self, session: _Optional[str] = ..., messages: _Optional[_Iterable[_Union[NewMessage, _Mapping]]] = ..., measured: _Optional[_Union[ClockMeasurement, _Mapping]] = ...) -> None: ...

class ClockMeasurement(_message.Message):
    __slots__ = ("drift_us", "latency_us")
    DRIFT_US_FIELD_NUMBER: _ClassVar[int]
    LATENCY_US_FIELD_NUMBER: _ClassVar[int]
    drift_us: int
    latency_us: int
    def __init__(self, drift_us: _Optional[int] = ..., latency_us: _Optional[int] = ...) -> None: ...

class ScheduleReply(_message.Message):
    __slots__ = ("outcomes", "clock")
    OUTCOMES_FIELD_NUMBER: _ClassVar[int]
    CLOCK_FIELD_NUMBER: _ClassVar[int]
    outcomes: _containers.RepeatedCompositeFieldContainer[Outcome]
    clock: ClockState
    def __init__(self, outcomes: _Optional[_Iterable[_Union[Outcome, _Mapping]]] = ..., clock: _Optional[_Union[ClockState, _Mapping]] = ...) -> None: ...

class Outcome(_message.Message):
    __slots__ = ("id", "error", "reason", "until_ms", "changed")
    ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    id: str
    error: str
    reason: str
    until_ms: int
    changed: bool
    def __init__(self, id: _Optional[str] = ..., error: _Optional[str] = ..., reason: _Optional[str] = ..., until_ms: _Optional[int] = ..., changed: _Optional[bool] = ...) -> None: ...

class OutcomesReply(_message.Message):
    __slots__ = ("outcomes",)
    OUTCOMES_FIELD_NUMBER: _ClassVar[int]
    outcomes: _containers.RepeatedCompositeFieldContainer[Outcome]
    def __init__(self, outcomes: _Optional[_Iterable[_Union[Outcome, _Mapping]]] = ...) -> None: ...

class CancelRequest(_message.Message):
    __slots__ = ("session", "ids")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    session: str
    ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, session: _Optional[str] = ..., ids: _Optional[_Iterable[str]] = ...) -> None: ...

class MoveRequest(_message.Message):
    __slots__ = ("session", "ids", "due_ms")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    DUE_MS_FIELD_NUMBER: _ClassVar[int]
    session: str
    ids: _containers.RepeatedScalarFieldContainer[str]
    due_ms: int
    def __init__(self, session: _Optional[str] = ..., ids: _Optional[_Iterable[str]] = ..., due_ms: _Optional[int] = ...) -> None: ...

class WorkUp(_message.Message):
    __slots__ = ("start", "operations", "pong", "readiness")
    START_FIELD_NUMBER: _ClassVar[int]
    OPERATIONS_FIELD_NUMBER: _ClassVar[int]
    PONG_FIELD_NUMBER: _ClassVar[int]
    READINESS_FIELD_NUMBER: _ClassVar[int]
    start: WorkStart
    operations: Operations
    pong: Pong
    readiness: Readiness
    def __init__(self, start: _Optional[_Union[WorkStart, _Mapping]] = ..., operations: _Optional[_Union[Operations, _Mapping]] = ..., pong: _Optional[_Union[Pong, _Mapping]] = ..., readiness: _Optional[_Union[Readiness, _Mapping]] = ...) -> None: ...

class WorkStart(_message.Message):
    __slots__ = ("session", "busy")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    BUSY_FIELD_NUMBER: _ClassVar[int]
    session: str
    busy: bool
    def __init__(self, session: _Optional[str] = ..., busy: _Optional[bool] = ...) -> None: ...

class Readiness(_message.Message):
    __slots__ = ("busy",)
    BUSY_FIELD_NUMBER: _ClassVar[int]
    busy: bool
    def __init__(self, busy: _Optional[bool] = ...) -> None: ...

class Operations(_message.Message):
    __slots__ = ("number", "operations")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    OPERATIONS_FIELD_NUMBER: _ClassVar[int]
    number: int
    operations: _containers.RepeatedCompositeFieldContainer[Operation]
    def __init__(self, number: _Optional[int] = ..., operations: _Optional[_Iterable[_Union[Operation, _Mapping]]] = ...) -> None: ...

class Operation(_message.Message):
    __slots__ = ("action", "seq", "token", "ms")
    ACTION_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    MS_FIELD_NUMBER: _ClassVar[int]
    action: Action
    seq: int
    token: int
    ms: int
    def __init__(self, action: _Optional[_Union[Action, str]] = ..., seq: _Optional[int] = ..., token: _Optional[int] = ..., ms: _Optional[int] = ...) -> None: ...

class WorkDown(_message.Message):
    __slots__ = ("leases", "outcomes", "ping", "clock", "move")
    LEASES_FIELD_NUMBER: _ClassVar[int]
    OUTCOMES_FIELD_NUMBER: _ClassVar[int]
    PING_FIELD_NUMBER: _ClassVar[int]
    CLOCK_FIELD_NUMBER: _ClassVar[int]
    MOVE_FIELD_NUMBER: _ClassVar[int]
    leases: Leases
    outcomes: Outcomes
    ping: Pinged
    clock: ClockState
    move: MoveHint
    def __init__(self, leases: _Optional[_Union[Leases, _Mapping]] = ..., outcomes: _Optional[_Union[Outcomes, _Mapping]] = ..., ping: _Optional[_Union[Pinged, _Mapping]] = ..., clock: _Optional[_Union[ClockState, _Mapping]] = ..., move: _Optional[_Union[MoveHint, _Mapping]] = ...) -> None: ...

class MoveHint(_message.Message):
    __slots__ = ("addresses", "reason", "window_ms")
    ADDRESSES_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    WINDOW_MS_FIELD_NUMBER: _ClassVar[int]
    addresses: _containers.RepeatedScalarFieldContainer[str]
    reason: str
    window_ms: int
    def __init__(self, addresses: _Optional[_Iterable[str]] = ..., reason: _Optional[str] = ..., window_ms: _Optional[int] = ...) -> None: ...

class ClockState(_message.Message):
    __slots__ = ("in_doubt", "reasons", "drifts")
    IN_DOUBT_FIELD_NUMBER: _ClassVar[int]
    REASONS_FIELD_NUMBER: _ClassVar[int]
    DRIFTS_FIELD_NUMBER: _ClassVar[int]
    in_doubt: bool
    reasons: _containers.RepeatedScalarFieldContainer[str]
    drifts: _containers.RepeatedCompositeFieldContainer[ClockDrift]
    def __init__(self, in_doubt: _Optional[bool] = ..., reasons: _Optional[_Iterable[str]] = ..., drifts: _Optional[_Iterable[_Union[ClockDrift, _Mapping]]] = ...) -> None: ...

class ClockDrift(_message.Message):
    __slots__ = ("target", "drift_ms")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    DRIFT_MS_FIELD_NUMBER: _ClassVar[int]
    target: str
    drift_ms: int
    def __init__(self, target: _Optional[str] = ..., drift_ms: _Optional[int] = ...) -> None: ...

class Leases(_message.Message):
    __slots__ = ("leases",)
    LEASES_FIELD_NUMBER: _ClassVar[int]
    leases: _containers.RepeatedCompositeFieldContainer[Lease]
    def __init__(self, leases: _Optional[_Iterable[_Union[Lease, _Mapping]]] = ...) -> None: ...

class Lease(_message.Message):
    __slots__ = ("id", "seq", "token", "body", "key", "due_ms", "attempts", "expires_ms", "left_ms")
    ID_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    DUE_MS_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_MS_FIELD_NUMBER: _ClassVar[int]
    LEFT_MS_FIELD_NUMBER: _ClassVar[int]
    id: str
    seq: int
    token: int
    body: bytes
    key: bytes
    due_ms: int
    attempts: int
    expires_ms: int
    left_ms: int
    def __init__(self, id: _Optional[str] = ..., seq: _Optional[int] = ..., token: _Optional[int] = ..., body: _Optional[bytes] = ..., key: _Optional[bytes] = ..., due_ms: _Optional[int] = ..., attempts: _Optional[int] = ..., expires_ms: _Optional[int] = ..., left_ms: _Optional[int] = ...) -> None: ...

class Outcomes(_message.Message):
    __slots__ = ("number", "outcomes", "all_done")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    OUTCOMES_FIELD_NUMBER: _ClassVar[int]
    ALL_DONE_FIELD_NUMBER: _ClassVar[int]
    number: int
    outcomes: _containers.RepeatedCompositeFieldContainer[Outcome]
    all_done: bool
    def __init__(self, number: _Optional[int] = ..., outcomes: _Optional[_Iterable[_Union[Outcome, _Mapping]]] = ..., all_done: _Optional[bool] = ...) -> None: ...

class Pinged(_message.Message):
    __slots__ = ("sent_us", "load")
    SENT_US_FIELD_NUMBER: _ClassVar[int]
    LOAD_FIELD_NUMBER: _ClassVar[int]
    sent_us: int
    load: TimelineLoad
    def __init__(self, sent_us: _Optional[int] = ..., load: _Optional[_Union[TimelineLoad, _Mapping]] = ...) -> None: ...

class TimelineLoad(_message.Message):
    __slots__ = ("available", "available_max", "arrivals_per_second", "late_ms")
    AVAILABLE_FIELD_NUMBER: _ClassVar[int]
    AVAILABLE_MAX_FIELD_NUMBER: _ClassVar[int]
    ARRIVALS_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    LATE_MS_FIELD_NUMBER: _ClassVar[int]
    available: int
    available_max: int
    arrivals_per_second: float
    late_ms: int
    def __init__(self, available: _Optional[int] = ..., available_max: _Optional[int] = ..., arrivals_per_second: _Optional[float] = ..., late_ms: _Optional[int] = ...) -> None: ...

class Pong(_message.Message):
    __slots__ = ("sent_us", "received_us", "answered_us")
    SENT_US_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_US_FIELD_NUMBER: _ClassVar[int]
    ANSWERED_US_FIELD_NUMBER: _ClassVar[int]
    sent_us: int
    received_us: int
    answered_us: int
    def __init__(self, sent_us: _Optional[int] = ..., received_us: _Optional[int] = ..., answered_us: _Optional[int] = ...) -> None: ...

class CountRequest(_message.Message):
    __slots__ = ("timeline", "status", "from_ms", "to_ms")
    TIMELINE_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    FROM_MS_FIELD_NUMBER: _ClassVar[int]
    TO_MS_FIELD_NUMBER: _ClassVar[int]
    timeline: str
    status: Status
    from_ms: int
    to_ms: int
    def __init__(self, timeline: _Optional[str] = ..., status: _Optional[_Union[Status, str]] = ..., from_ms: _Optional[int] = ..., to_ms: _Optional[int] = ...) -> None: ...

class CountReply(_message.Message):
    __slots__ = ("count",)
    COUNT_FIELD_NUMBER: _ClassVar[int]
    count: int
    def __init__(self, count: _Optional[int] = ...) -> None: ...

class ListMessagesRequest(_message.Message):
    __slots__ = ("timeline", "status", "from_ms", "to_ms", "limit")
    TIMELINE_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    FROM_MS_FIELD_NUMBER: _ClassVar[int]
    TO_MS_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    timeline: str
    status: Status
    from_ms: int
    to_ms: int
    limit: int
    def __init__(self, timeline: _Optional[str] = ..., status: _Optional[_Union[Status, str]] = ..., from_ms: _Optional[int] = ..., to_ms: _Optional[int] = ..., limit: _Optional[int] = ...) -> None: ...

class ListMessagesReply(_message.Message):
    __slots__ = ("messages",)
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[ListedMessage]
    def __init__(self, messages: _Optional[_Iterable[_Union[ListedMessage, _Mapping]]] = ...) -> None: ...

class ListedMessage(_message.Message):
    __slots__ = ("id", "due_ms", "status", "attempts", "key", "body", "holder", "position_ms", "seq", "group", "recurrence")
    ID_FIELD_NUMBER: _ClassVar[int]
    DUE_MS_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    POSITION_MS_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    RECURRENCE_FIELD_NUMBER: _ClassVar[int]
    id: str
    due_ms: int
    status: Status
    attempts: int
    key: bytes
    body: bytes
    holder: str
    position_ms: int
    seq: int
    group: str
    recurrence: Recurrence
    def __init__(self, id: _Optional[str] = ..., due_ms: _Optional[int] = ..., status: _Optional[_Union[Status, str]] = ..., attempts: _Optional[int] = ..., key: _Optional[bytes] = ..., body: _Optional[bytes] = ..., holder: _Optional[str] = ..., position_ms: _Optional[int] = ..., seq: _Optional[int] = ..., group: _Optional[str] = ..., recurrence: _Optional[_Union[Recurrence, _Mapping]] = ...) -> None: ...

class HistogramRequest(_message.Message):
    __slots__ = ("timeline", "from_ms", "to_ms", "buckets", "status")
    TIMELINE_FIELD_NUMBER: _ClassVar[int]
    FROM_MS_FIELD_NUMBER: _ClassVar[int]
    TO_MS_FIELD_NUMBER: _ClassVar[int]
    BUCKETS_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    timeline: str
    from_ms: int
    to_ms: int
    buckets: int
    status: Status
    def __init__(self, timeline: _Optional[str] = ..., from_ms: _Optional[int] = ..., to_ms: _Optional[int] = ..., buckets: _Optional[int] = ..., status: _Optional[_Union[Status, str]] = ...) -> None: ...

class HistogramReply(_message.Message):
    __slots__ = ("from_ms", "to_ms", "counts")
    FROM_MS_FIELD_NUMBER: _ClassVar[int]
    TO_MS_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    from_ms: int
    to_ms: int
    counts: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, from_ms: _Optional[int] = ..., to_ms: _Optional[int] = ..., counts: _Optional[_Iterable[int]] = ...) -> None: ...

class PingRequest(_message.Message):
    __slots__ = ("sent_us", "session", "measured", "drift_us", "latency_us")
    SENT_US_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    MEASURED_FIELD_NUMBER: _ClassVar[int]
    DRIFT_US_FIELD_NUMBER: _ClassVar[int]
    LATENCY_US_FIELD_NUMBER: _ClassVar[int]
    sent_us: int
    session: str
    measured: bool
    drift_us: int
    latency_us: int
    def __init__(self, sent_us: _Optional[int] = ..., session: _Optional[str] = ..., measured: _Optional[bool] = ..., drift_us: _Optional[int] = ..., latency_us: _Optional[int] = ...) -> None: ...

class PingReply(_message.Message):
    __slots__ = ("sent_us", "received_us", "answered_us", "state")
    SENT_US_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_US_FIELD_NUMBER: _ClassVar[int]
    ANSWERED_US_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    sent_us: int
    received_us: int
    answered_us: int
    state: str
    def __init__(self, sent_us: _Optional[int] = ..., received_us: _Optional[int] = ..., answered_us: _Optional[int] = ..., state: _Optional[str] = ...) -> None: ...
