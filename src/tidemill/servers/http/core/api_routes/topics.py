"""The routes of topics."""

from tidemill.security.core.resources import Operation
from tidemill.servers.http.core.route_access import PAGE, TOPIC, LoginNeed, RouteAccess, RouteShapes, optional
from tidemill.wire.http.groups import TopicGroups
from tidemill.wire.http.topics import (
    CreatedTopic,
    NewTopicInput,
    PartitionStarts,
    ProducerPage,
    ProducerQuery,
    RecordDeletionsInput,
    TopicDescription,
    TopicPage,
    TopicPartitionsInput,
    TopicQuery,
    TopicSettingList,
    TopicSettingsInput,
)

_LISTED = optional(Operation.DESCRIBE, TOPIC, "leaves out the other topics")
_CHECKED = "the Kafka server checks it"
_TOPIC = "/api/v1/topics/{topic}"


def _read(path: str, operation: Operation, shapes: RouteShapes) -> RouteAccess:
    return RouteAccess("GET", path, LoginNeed.LOGIN, (optional(operation, TOPIC, _CHECKED),), shapes=shapes)


def _change(method: str, path: str, operation: Operation, shapes: RouteShapes) -> RouteAccess:
    rights = (optional(operation, TOPIC, _CHECKED),)
    return RouteAccess(method, path, LoginNeed.LOGIN, rights, shapes=shapes, changes=True)


ROUTES: tuple[RouteAccess, ...] = (
    RouteAccess(
        "GET",
        "/topics",
        LoginNeed.LOGIN,
        (_LISTED,),
        shapes=RouteShapes("Show the topics.", query=TopicQuery, media_type=PAGE),
    ),
    RouteAccess(
        "GET",
        "/api/v1/topics",
        LoginNeed.LOGIN,
        (_LISTED,),
        shapes=RouteShapes("List topics with their size and offsets.", TopicPage, TopicQuery),
    ),
    _change(
        "POST", "/api/v1/topics", Operation.CREATE, RouteShapes("Create a topic.", CreatedTopic, body=NewTopicInput)
    ),
    _read(_TOPIC, Operation.DESCRIBE, RouteShapes("Describe a topic and its partitions.", TopicDescription)),
    _change("DELETE", _TOPIC, Operation.DELETE, RouteShapes("Delete a topic with all its records.")),
    _change("POST", _TOPIC + "/partitions", Operation.ALTER, RouteShapes("Add partitions.", body=TopicPartitionsInput)),
    _change(
        "POST",
        _TOPIC + "/delete-records",
        Operation.DELETE,
        RouteShapes("Delete the records before an offset.", PartitionStarts, body=RecordDeletionsInput),
    ),
    _read(
        _TOPIC + "/settings", Operation.DESCRIBE_CONFIGS, RouteShapes("List the settings of a topic.", TopicSettingList)
    ),
    _change(
        "PATCH",
        _TOPIC + "/settings",
        Operation.ALTER_CONFIGS,
        RouteShapes("Change settings of a topic.", TopicSettingList, body=TopicSettingsInput),
    ),
    _read(
        _TOPIC + "/producers",
        Operation.READ,
        RouteShapes("List the producers of a topic.", ProducerPage, ProducerQuery),
    ),
    _read(_TOPIC + "/groups", Operation.DESCRIBE, RouteShapes("List the groups that read a topic.", TopicGroups)),
)
