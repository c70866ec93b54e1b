"""The one tree of errors.

Every error that can reach a client is a class here: `code` is Kafka's number for it, `retriable` says whether the same
request may succeed later, the docstring is the sentence a user reads when nothing more exact is known. Doors turn
an error into an answer; an error whose `closes_connection` is true has no answer, the connection ends.
"""

from typing import ClassVar


class TidemillError(Exception):
    """Something went wrong in Tidemill."""

    code: ClassVar[int] = -1
    retriable: ClassVar[bool] = False
    closes_connection: ClassVar[bool] = False

    def __str__(self) -> str:
        return super().__str__() or (self.__doc__ or "").strip()


class ProtocolViolation(TidemillError):
    """The bytes are not a request that this broker can answer."""

    code = 42
    closes_connection = True


class KafkaError(TidemillError):
    """An error that Kafka's protocol has a code for."""


class UnknownServerError(KafkaError):
    """The broker met an error it did not expect."""

    code = -1


class OffsetOutOfRange(KafkaError):
    """The offset is outside of the log."""

    code = 1


class CorruptMessage(KafkaError):
    """The record batch is damaged or does not keep to the format."""

    code = 2
    retriable = True


class UnknownTopicOrPartition(KafkaError):
    """The topic or partition does not exist here."""

    code = 3
    retriable = True


class LeaderNotAvailable(KafkaError):
    """The partition has no leader at the moment."""

    code = 5
    retriable = True


class NotLeaderOrFollower(KafkaError):
    """This broker does not lead the partition."""

    code = 6
    retriable = True


class RequestTimedOut(KafkaError):
    """The request took longer than it allowed."""

    code = 7
    retriable = True


class MessageTooLarge(KafkaError):
    """The record batch is larger than max.message.bytes."""

    code = 10


class OffsetMetadataTooLarge(KafkaError):
    """The metadata of the offset is larger than offset.metadata.max.bytes."""

    code = 12


class CoordinatorLoadInProgress(KafkaError):
    """The coordinator is still reading its journal."""

    code = 14
    retriable = True


class CoordinatorNotAvailable(KafkaError):
    """The coordinator is not available."""

    code = 15
    retriable = True


class NotCoordinator(KafkaError):
    """This broker does not coordinate the group or transactional id."""

    code = 16
    retriable = True


class InvalidTopic(KafkaError):
    """The name is not a valid topic name."""

    code = 17


class RecordListTooLarge(KafkaError):
    """The record batch is larger than a segment."""

    code = 18


class NotEnoughReplicas(KafkaError):
    """Fewer replicas are in sync than min.insync.replicas asks for."""

    code = 19
    retriable = True


class NotEnoughReplicasAfterAppend(KafkaError):
    """The records were written, but by fewer replicas than min.insync.replicas asks for."""

    code = 20
    retriable = True


class InvalidRequiredAcks(KafkaError):
    """acks is none of -1, 0 and 1."""

    code = 21


class IllegalGeneration(KafkaError):
    """The generation is not the group's current one."""

    code = 22


class InconsistentGroupProtocol(KafkaError):
    """The member's protocols do not fit the group's."""

    code = 23


class InvalidGroupId(KafkaError):
    """The group id is not valid."""

    code = 24


class UnknownMemberId(KafkaError):
    """The group does not know this member."""

    code = 25


class InvalidSessionTimeout(KafkaError):
    """The session timeout is outside of the broker's limits."""

    code = 26


class RebalanceInProgress(KafkaError):
    """The group is rebalancing; join again."""

    code = 27


class TopicAuthorizationFailed(KafkaError):
    """Not allowed on this topic."""

    code = 29


class GroupAuthorizationFailed(KafkaError):
    """Not allowed on this group."""

    code = 30


class ClusterAuthorizationFailed(KafkaError):
    """Not allowed on this cluster."""

    code = 31


class InvalidTimestamp(KafkaError):
    """The timestamp is outside of the topic's limits."""

    code = 32


class UnsupportedSaslMechanism(KafkaError):
    """This broker does not let anybody in by that mechanism."""

    code = 33


class IllegalSaslState(KafkaError):
    """The steps of the handshake came in the wrong order."""

    code = 34


class UnsupportedVersion(KafkaError):
    """The broker does not speak this version of the request."""

    code = 35


class TopicAlreadyExists(KafkaError):
    """A topic of this name exists."""

    code = 36


class InvalidPartitions(KafkaError):
    """The number of partitions is not valid."""

    code = 37


class InvalidReplicationFactor(KafkaError):
    """The replication factor is below 1 or above the number of brokers."""

    code = 38


class InvalidReplicaAssignment(KafkaError):
    """The replica assignment is not valid."""

    code = 39


class InvalidConfig(KafkaError):
    """The setting is unknown or its value is not valid."""

    code = 40


class NotController(KafkaError):
    """This broker is not the controller."""

    code = 41
    retriable = True


class InvalidRequest(KafkaError):
    """The request contradicts itself or the protocol."""

    code = 42


class UnsupportedForMessageFormat(KafkaError):
    """The message format does not allow this."""

    code = 43


class PolicyViolation(KafkaError):
    """The request breaks a policy of this broker."""

    code = 44


class OutOfOrderSequence(KafkaError):
    """The producer's sequence number does not follow the last one."""

    code = 45


class DuplicateSequence(KafkaError):
    """The producer sent this sequence number before."""

    code = 46


class InvalidProducerEpoch(KafkaError):
    """The producer's epoch is older than the current one."""

    code = 47


class InvalidTxnState(KafkaError):
    """The transaction is not in a state that allows this."""

    code = 48


class InvalidProducerIdMapping(KafkaError):
    """The producer id does not belong to the transactional id."""

    code = 49


class InvalidTransactionTimeout(KafkaError):
    """The transaction timeout is outside of the broker's limits."""

    code = 50


class ConcurrentTransactions(KafkaError):
    """The transactional id is still ending its last transaction."""

    code = 51
    retriable = True


class TransactionCoordinatorFenced(KafkaError):
    """The transaction coordinator is no longer the current one."""

    code = 52


class TransactionalIdAuthorizationFailed(KafkaError):
    """Not allowed on this transactional id."""

    code = 53


class SecurityDisabled(KafkaError):
    """Security features are switched off."""

    code = 54


class OperationNotAttempted(KafkaError):
    """The operation was not tried because another part of the request failed."""

    code = 55


class KafkaStorageError(KafkaError):
    """The disk of the partition has failed."""

    code = 56
    retriable = True


class LogDirNotFound(KafkaError):
    """There is no such log directory."""

    code = 57


class UnknownProducerId(KafkaError):
    """The broker has no state of this producer."""

    code = 59


class ReassignmentInProgress(KafkaError):
    """The partition is being reassigned."""

    code = 60


class SaslAuthenticationFailed(KafkaError):
    """Whoever asks is not who it says it is."""

    code = 58


class InvalidPrincipalType(KafkaError):
    """The principal type is not supported."""

    code = 67


class NonEmptyGroup(KafkaError):
    """The group has members."""

    code = 68


class GroupIdNotFound(KafkaError):
    """The group does not exist."""

    code = 69


class FetchSessionIdNotFound(KafkaError):
    """The fetch session does not exist."""

    code = 70
    retriable = True


class InvalidFetchSessionEpoch(KafkaError):
    """The epoch of the fetch session is not the expected one."""

    code = 71
    retriable = True


class ListenerNotFound(KafkaError):
    """There is no such listener."""

    code = 72
    retriable = True


class FencedLeaderEpoch(KafkaError):
    """The leader epoch is older than the current one."""

    code = 74
    retriable = True


class UnknownLeaderEpoch(KafkaError):
    """The leader epoch is newer than this broker knows."""

    code = 75
    retriable = True


class UnsupportedCompressionType(KafkaError):
    """The compression is not supported by this version of the request."""

    code = 76


class StaleBrokerEpoch(KafkaError):
    """The broker has registered again since."""

    code = 77


class OffsetNotAvailable(KafkaError):
    """The leader does not know its high watermark yet."""

    code = 78
    retriable = True


class MemberIdRequired(KafkaError):
    """Join again with the member id that came with this answer."""

    code = 79


class PreferredLeaderNotAvailable(KafkaError):
    """The preferred leader is not available."""

    code = 80
    retriable = True


class GroupMaxSizeReached(KafkaError):
    """The group has as many members as group.max.size allows."""

    code = 81


class FencedInstanceId(KafkaError):
    """Another member has taken over this group instance id."""

    code = 82


class EligibleLeadersNotAvailable(KafkaError):
    """No eligible leader is available."""

    code = 83
    retriable = True


class ElectionNotNeeded(KafkaError):
    """The partition has the right leader already."""

    code = 84
    retriable = True


class NoReassignmentInProgress(KafkaError):
    """The partition is not being reassigned."""

    code = 85


class GroupSubscribedToTopic(KafkaError):
    """The group is subscribed to the topic."""

    code = 86


class InvalidRecord(KafkaError):
    """The record batch breaks a rule of its topic."""

    code = 87
    record_errors: tuple[tuple[int, str], ...] = ()  # which records of the batch, by index, and why


class UnstableOffsetCommit(KafkaError):
    """The partition has offsets of an open transaction."""

    code = 88
    retriable = True


class ThrottlingQuotaExceeded(KafkaError):
    """The quota is used up."""

    code = 89
    retriable = True


class ProducerFenced(KafkaError):
    """A newer producer with the same transactional id has taken over."""

    code = 90


class ResourceNotFound(KafkaError):
    """There is no such resource."""

    code = 91


class DuplicateResource(KafkaError):
    """The request names a resource twice."""

    code = 92


class UnacceptableCredential(KafkaError):
    """The credential does not keep to the rules."""

    code = 93


class InvalidUpdateVersion(KafkaError):
    """The version is not the current one."""

    code = 95


class UnknownTopicId(KafkaError):
    """No topic has this id."""

    code = 100
    retriable = True


class BrokerIdNotRegistered(KafkaError):
    """The cluster does not know a broker of this number."""

    code = 102


class InconsistentTopicId(KafkaError):
    """The topic id does not belong to the topic."""

    code = 103
    retriable = True


class TransactionalIdNotFound(KafkaError):
    """The transactional id is not known."""

    code = 105


class FetchSessionTopicIdError(KafkaError):
    """The fetch session mixes topic names and ids."""

    code = 106
    retriable = True


class FencedMemberEpoch(KafkaError):
    """The member epoch is not the current one; join again."""

    code = 110


class UnreleasedInstanceId(KafkaError):
    """Another member still holds this group instance id."""

    code = 111


class UnsupportedAssignor(KafkaError):
    """The broker has no such assignor."""

    code = 112


class StaleMemberEpoch(KafkaError):
    """The member epoch is older than the current one."""

    code = 113


class UnknownSubscriptionId(KafkaError):
    """The subscription id is not known."""

    code = 117


class TransactionAbortable(KafkaError):
    """The transaction can only be aborted."""

    code = 120


class InvalidRegularExpression(KafkaError):
    """The regular expression is not valid."""

    code = 128


BY_CODE: dict[int, type[KafkaError]] = {error.code: error for error in KafkaError.__subclasses__()}


def by_name(name: str) -> type[KafkaError]:
    """The class of that name; `UnknownServerError` for one that this version does not know."""
    found = globals().get(name)
    return found if isinstance(found, type) and issubclass(found, KafkaError) else UnknownServerError


def of_code(code: int, message: str = "") -> KafkaError:
    """The error that `code` stands for, as a client meets it in an answer."""
    return BY_CODE.get(code, UnknownServerError)(message)
