"""The single tree of errors.

Every error that can reach a client is a class here. `code` is Kafka's number for it, and `retriable` means that the
same request may succeed later. The docstring is the message that a user reads when there is no more specific one.
Servers turn an error into a response. An error with `closes_connection` has no response; the server closes the
connection. A class inherits the values that it does not set.
"""

import re
from typing import ClassVar, Self

_BATCH_OFFSETS = re.compile(r" at offsets [0-9]+ to ([0-9]+) cannot be read")


class TidemillError(Exception):
    """Tidemill reported an error."""

    code: ClassVar[int] = -1
    retriable: ClassVar[bool] = False
    closes_connection: ClassVar[bool] = False
    retry_after_ms: int = 0
    """For how long the client has to wait before it tries again."""

    def __init_subclass__(
        cls, *, code: int | None = None, retriable: bool | None = None, closes_connection: bool | None = None
    ) -> None:
        super().__init_subclass__()
        facts = {"code": code, "retriable": retriable, "closes_connection": closes_connection}
        for name, value in facts.items():
            if value is not None:
                setattr(cls, name, value)

    def __str__(self) -> str:
        return super().__str__() or (self.__doc__ or "").strip()


class ProtocolViolation(TidemillError, code=42, closes_connection=True):
    """The bytes are not a request that this broker can answer."""


class KafkaError(TidemillError):
    """An error that Kafka's protocol has a code for."""


class UnknownServerError(KafkaError, code=-1):
    """The broker encountered an unexpected error."""


class OffsetOutOfRange(KafkaError, code=1):
    """The offset is outside of the log."""


class CorruptMessage(KafkaError, code=2, retriable=True):
    """The record batch is damaged or malformed."""


class UnreadableBatch(CorruptMessage, retriable=False):
    """A stored record batch cannot be read."""

    @classmethod
    def at(cls, topic: str, partition: int, base_offset: int, last_offset: int, reason: object) -> Self:
        """Build the error for a batch. Clients parse its offsets from the text (`next_offset`)."""
        return cls(
            f"the batch of {topic}-{partition} at offsets {base_offset} to {last_offset} cannot be read: {reason}"
        )

    @property
    def next_offset(self) -> int | None:
        """The offset after the batch, or None if the text has no offsets."""
        found = _BATCH_OFFSETS.search(str(self))
        return None if found is None else int(found[1]) + 1


class UnknownTopicOrPartition(KafkaError, code=3, retriable=True):
    """The topic or partition does not exist here."""


class LeaderNotAvailable(KafkaError, code=5, retriable=True):
    """The partition has no leader at the moment."""


class NotLeaderOrFollower(KafkaError, code=6, retriable=True):
    """This broker does not lead the partition."""


class RequestTimedOut(KafkaError, code=7, retriable=True):
    """The request did not complete within its timeout."""


class MessageTooLarge(KafkaError, code=10):
    """The record batch is larger than max.message.bytes."""


class OffsetMetadataTooLarge(KafkaError, code=12):
    """The metadata of the offset is larger than offset.metadata.max.bytes."""


class CoordinatorLoadInProgress(KafkaError, code=14, retriable=True):
    """The coordinator is still reading its journal."""


class CoordinatorNotAvailable(KafkaError, code=15, retriable=True):
    """The coordinator is not available."""


class NotCoordinator(KafkaError, code=16, retriable=True):
    """This broker does not coordinate the group or transactional id."""


class InvalidTopic(KafkaError, code=17):
    """The name is not a valid topic name."""


class RecordListTooLarge(KafkaError, code=18):
    """The record batch is larger than a segment."""


class NotEnoughReplicas(KafkaError, code=19, retriable=True):
    """Fewer replicas are in sync than min.insync.replicas requires."""


class NotEnoughReplicasAfterAppend(KafkaError, code=20, retriable=True):
    """The records were written, but to fewer replicas than min.insync.replicas requires."""


class InvalidRequiredAcks(KafkaError, code=21):
    """acks must be -1, 0 or 1."""


class IllegalGeneration(KafkaError, code=22):
    """The generation is not the group's current one."""


class InconsistentGroupProtocol(KafkaError, code=23):
    """The member's protocols do not match the group's."""


class InvalidGroupId(KafkaError, code=24):
    """The group id is not valid."""


class UnknownMemberId(KafkaError, code=25):
    """The group does not know this member."""


class InvalidSessionTimeout(KafkaError, code=26):
    """The session timeout is outside of the broker's limits."""


class RebalanceInProgress(KafkaError, code=27):
    """The group is rebalancing; join again."""


class TopicAuthorizationFailed(KafkaError, code=29):
    """Not allowed on this topic."""


class GroupAuthorizationFailed(KafkaError, code=30):
    """Not allowed on this group."""


class ClusterAuthorizationFailed(KafkaError, code=31):
    """Not allowed on this cluster."""


class InvalidTimestamp(KafkaError, code=32):
    """The timestamp is outside of the topic's limits."""


class UnsupportedSaslMechanism(KafkaError, code=33):
    """This broker does not support that SASL mechanism."""


class IllegalSaslState(KafkaError, code=34):
    """The steps of the SASL handshake arrived in the wrong order."""


class UnsupportedVersion(KafkaError, code=35):
    """The broker does not support this version of the request."""


class TopicAlreadyExists(KafkaError, code=36):
    """A topic of this name exists."""


class InvalidPartitions(KafkaError, code=37):
    """The number of partitions is not valid."""


class InvalidReplicationFactor(KafkaError, code=38):
    """The replication factor is below 1 or above the number of brokers."""


class InvalidReplicaAssignment(KafkaError, code=39):
    """The replica assignment is not valid."""


class InvalidConfig(KafkaError, code=40):
    """The setting is unknown or its value is not valid."""


class NotController(KafkaError, code=41, retriable=True):
    """This broker is not the controller."""


class InvalidRequest(KafkaError, code=42):
    """The request contradicts itself or the protocol."""


class UnsupportedForMessageFormat(KafkaError, code=43):
    """The message format does not allow this."""


class PolicyViolation(KafkaError, code=44):
    """The request breaks a policy of this broker."""


class OutOfOrderSequence(KafkaError, code=45):
    """The producer's sequence number does not follow the last one."""


class DuplicateSequence(KafkaError, code=46):
    """The producer sent this sequence number before."""


class InvalidProducerEpoch(KafkaError, code=47):
    """The producer's epoch is older than the current one."""


class InvalidTxnState(KafkaError, code=48):
    """The transaction is not in a state that allows this."""


class InvalidProducerIdMapping(KafkaError, code=49):
    """The producer id does not belong to the transactional id."""


class InvalidTransactionTimeout(KafkaError, code=50):
    """The transaction timeout is outside of the broker's limits."""


class ConcurrentTransactions(KafkaError, code=51, retriable=True):
    """The transactional id is still ending its last transaction."""


class TransactionCoordinatorFenced(KafkaError, code=52):
    """The transaction coordinator is no longer the current one."""


class TransactionalIdAuthorizationFailed(KafkaError, code=53):
    """Not allowed on this transactional id."""


class SecurityDisabled(KafkaError, code=54):
    """Security features are disabled."""


class OperationNotAttempted(KafkaError, code=55):
    """The operation was not tried because another part of the request failed."""


class KafkaStorageError(KafkaError, code=56, retriable=True):
    """The disk of the partition has failed."""


class LogDirNotFound(KafkaError, code=57):
    """The log directory does not exist."""


class UnknownProducerId(KafkaError, code=59):
    """The broker has no state of this producer."""


class ReassignmentInProgress(KafkaError, code=60):
    """The partition is being reassigned."""


class SaslAuthenticationFailed(KafkaError, code=58):
    """The credentials are wrong or missing."""


class InvalidPrincipalType(KafkaError, code=67):
    """The principal type is not supported."""


class NonEmptyGroup(KafkaError, code=68):
    """The group has members."""


class GroupIdNotFound(KafkaError, code=69):
    """The group does not exist."""


class FetchSessionIdNotFound(KafkaError, code=70, retriable=True):
    """The fetch session does not exist."""


class InvalidFetchSessionEpoch(KafkaError, code=71, retriable=True):
    """The epoch of the fetch session is not the expected one."""


class ListenerNotFound(KafkaError, code=72, retriable=True):
    """The listener does not exist."""


class FencedLeaderEpoch(KafkaError, code=74, retriable=True):
    """The leader epoch is older than the current one."""


class UnknownLeaderEpoch(KafkaError, code=75, retriable=True):
    """The leader epoch is newer than this broker knows."""


class UnsupportedCompressionType(KafkaError, code=76):
    """The compression is not supported by this version of the request."""


class StaleBrokerEpoch(KafkaError, code=77):
    """The broker has registered again since."""


class OffsetNotAvailable(KafkaError, code=78, retriable=True):
    """The leader does not know its high watermark yet."""


class MemberIdRequired(KafkaError, code=79):
    """Join again with the member id of this response."""


class PreferredLeaderNotAvailable(KafkaError, code=80, retriable=True):
    """The preferred leader is not available."""


class GroupMaxSizeReached(KafkaError, code=81):
    """The group has as many members as group.max.size allows."""


class FencedInstanceId(KafkaError, code=82):
    """Another member has taken over this group instance id."""


class EligibleLeadersNotAvailable(KafkaError, code=83, retriable=True):
    """No eligible leader is available."""


class ElectionNotNeeded(KafkaError, code=84, retriable=True):
    """The partition already has the right leader."""


class NoReassignmentInProgress(KafkaError, code=85):
    """The partition is not being reassigned."""


class GroupSubscribedToTopic(KafkaError, code=86):
    """The group is subscribed to the topic."""


class InvalidRecord(KafkaError, code=87):
    """The record batch violates a rule of its topic."""

    record_errors: tuple[tuple[int, str], ...] = ()  # the rejected records of the batch: index and reason


class UnstableOffsetCommit(KafkaError, code=88, retriable=True):
    """The partition has offsets of an open transaction."""


class ThrottlingQuotaExceeded(KafkaError, code=89, retriable=True):
    """The quota is used up."""


class ProducerFenced(KafkaError, code=90):
    """A newer producer with the same transactional id has taken over."""


class ResourceNotFound(KafkaError, code=91):
    """The resource does not exist."""


class DuplicateResource(KafkaError, code=92):
    """The request names a resource twice."""


class UnacceptableCredential(KafkaError, code=93):
    """The credential does not follow the rules."""


class InvalidUpdateVersion(KafkaError, code=95):
    """The version is not the current one."""


class UnknownTopicId(KafkaError, code=100, retriable=True):
    """No topic has this id."""


class BrokerIdNotRegistered(KafkaError, code=102):
    """The cluster has no broker with this id."""


class InconsistentTopicId(KafkaError, code=103, retriable=True):
    """The topic id does not belong to the topic."""


class TransactionalIdNotFound(KafkaError, code=105):
    """The transactional id does not exist."""


class FetchSessionTopicIdError(KafkaError, code=106, retriable=True):
    """The fetch session mixes topic names and ids."""


class FencedMemberEpoch(KafkaError, code=110):
    """The member epoch is not the current one; join again."""


class UnreleasedInstanceId(KafkaError, code=111):
    """Another member still holds this group instance id."""


class UnsupportedAssignor(KafkaError, code=112):
    """The broker has no such assignor."""


class StaleMemberEpoch(KafkaError, code=113):
    """The member epoch is older than the current one."""


class UnknownSubscriptionId(KafkaError, code=117):
    """The subscription id does not exist."""


class TransactionAbortable(KafkaError, code=120):
    """The transaction can only be aborted."""


class InvalidRecordState(KafkaError, code=121):
    """The record is not acquired by this member; its lock may have ended."""


class ShareSessionNotFound(KafkaError, code=122, retriable=True):
    """The broker does not have this share session; open another one."""


class InvalidShareSessionEpoch(KafkaError, code=123, retriable=True):
    """The epoch of the share session is not the next one."""


class FencedStateEpoch(KafkaError, code=124):
    """The state of the share partition was replaced; read it again."""


class InvalidRegularExpression(KafkaError, code=128):
    """The regular expression is not valid."""


class ShareSessionLimitReached(KafkaError, code=133, retriable=True):
    """The broker has as many share sessions as it accepts."""


BY_CODE: dict[int, type[KafkaError]] = {error.code: error for error in KafkaError.__subclasses__()}


AUTHORIZATION_CODES = frozenset(
    {
        TopicAuthorizationFailed.code,
        GroupAuthorizationFailed.code,
        ClusterAuthorizationFailed.code,
        TransactionalIdAuthorizationFailed.code,
    }
)
"""The codes of requests that ACLs refuse."""


def by_name(name: str) -> type[KafkaError]:
    """Return the class of that name, or `UnknownServerError` if this version does not have it."""
    found = globals().get(name)
    return found if isinstance(found, type) and issubclass(found, KafkaError) else UnknownServerError


def of_code(code: int, message: str = "") -> KafkaError:
    """Return the error for a code in a response."""
    return BY_CODE.get(code, UnknownServerError)(message)
