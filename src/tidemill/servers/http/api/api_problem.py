"""Errors of the API, and the HTTP status of each error of the broker."""

from tidemill.client.kafka.errors import ClientError, InvalidClientOption
from tidemill.model import errors, timeline_errors
from tidemill.model.errors import TidemillError

DENIALS = (errors.TopicAuthorizationFailed, errors.GroupAuthorizationFailed, errors.ClusterAuthorizationFailed)
"""Refusals that an ACL would lift."""
FORBIDDEN = (
    *DENIALS,
    errors.TransactionalIdAuthorizationFailed,
    errors.SecurityDisabled,
    timeline_errors.TimelineAuthorizationFailed,
    timeline_errors.NotOwner,
)
MISSING = (
    errors.UnknownTopicOrPartition,
    errors.UnknownTopicId,
    errors.GroupIdNotFound,
    errors.ResourceNotFound,
    errors.TransactionalIdNotFound,
    errors.BrokerIdNotRegistered,
    timeline_errors.UnknownTimeline,
    timeline_errors.UnknownMessage,
)
CONFLICTS = (
    errors.TopicAlreadyExists,
    errors.DuplicateResource,
    errors.NonEmptyGroup,
    errors.GroupSubscribedToTopic,
    errors.ReassignmentInProgress,
    timeline_errors.TimelineExists,
    timeline_errors.TimelineDeleting,
    timeline_errors.LeaseIsLive,
    timeline_errors.StaleLease,
)


class ApiProblem(Exception):
    """A request that the server refuses, with its HTTP status and one sentence.

    `field` is the part of the body that it is about, such as `partitions` or `config.retention.ms`; empty for others.
    """

    def __init__(self, status: int, reason: str, field: str = "") -> None:
        super().__init__(reason)
        self.status = status
        self.field = field


def status_of_error(error: TidemillError) -> int:
    """The HTTP status for an error of the broker."""
    for status, kinds in ((403, FORBIDDEN), (404, MISSING), (409, CONFLICTS)):
        if isinstance(error, kinds):
            return status
    if isinstance(error, errors.ThrottlingQuotaExceeded):
        return 429
    if error.retriable or (isinstance(error, ClientError) and not isinstance(error, InvalidClientOption)):
        return 503
    return 500 if isinstance(error, errors.UnknownServerError) else 400
