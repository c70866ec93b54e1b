"""The routes of topics."""

from typing import Any

from tidemill.security.core.resources import Operation
from tidemill.servers.http.core.route_access import (
    GROUP,
    PAGE,
    TOPIC,
    LoginNeed,
    RouteAccess,
    RouteRight,
    RouteShapes,
    optional,
)
from tidemill.wire.http.groups import TopicGroups
from tidemill.wire.http.overview import History
from tidemill.wire.http.topics import (
    CreatedTopic,
    NewTopicInput,
    PartitionQuery,
    PartitionStarts,
    ProducerPage,
    ProducerQuery,
    RecordDeletionsInput,
    SettingQuery,
    TopicDescription,
    TopicGroupQuery,
    TopicHistoryQuery,
    TopicPage,
    TopicPartitionsInput,
    TopicQuery,
    TopicSettingList,
    TopicSettingsInput,
)

_LISTED = optional(Operation.DESCRIBE, TOPIC, "leaves out the other topics")
_CHECKED = "the Kafka server checks it"
_SETTINGS = optional(Operation.DESCRIBE_CONFIGS, TOPIC, "for its settings")
_GROUPS = optional(Operation.DESCRIBE, GROUP, "leaves out the other groups")
_TOPIC = "/api/v1/topics/{topic}"


def _read(path: str, operation: Operation, shapes: RouteShapes) -> RouteAccess:
    return RouteAccess("GET", path, LoginNeed.LOGIN, (optional(operation, TOPIC, _CHECKED),), shapes=shapes)


def _change(method: str, path: str, operation: Operation, shapes: RouteShapes) -> RouteAccess:
    rights = (optional(operation, TOPIC, _CHECKED),)
    return RouteAccess(method, path, LoginNeed.LOGIN, rights, shapes=shapes, changes=True)


def _page(path: str, rights: tuple[RouteRight, ...], summary: str, query: type[Any] | None = None) -> RouteAccess:
    shown = (optional(Operation.DESCRIBE, TOPIC, "for the topic"), *rights)
    return RouteAccess(
        "GET",
        "/topics/{topic}" + path,
        LoginNeed.LOGIN,
        shown,
        shapes=RouteShapes(summary, query=query, media_type=PAGE),
    )


ROUTES: tuple[RouteAccess, ...] = (
    RouteAccess(
        "GET",
        "/topics",
        LoginNeed.LOGIN,
        (_LISTED,),
        shapes=RouteShapes("Show the topics.", query=TopicQuery, media_type=PAGE),
    ),
    _page("", (_SETTINGS, _GROUPS), "Show one topic.", TopicHistoryQuery),
    _page("/partitions", (), "Show the partitions of a topic.", PartitionQuery),
    _page("/settings", (_SETTINGS,), "Show the settings of a topic.", SettingQuery),
    _page("/groups", (_GROUPS,), "Show the groups that read a topic.", TopicGroupQuery),
    _page(
        "/producers",
        (optional(Operation.READ, TOPIC, "for the producers"),),
        "Show the producers of a topic.",
        ProducerQuery,
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
    _read(
        _TOPIC + "/history",
        Operation.DESCRIBE,
        RouteShapes("Show the rates of a topic over the last minutes.", History, TopicHistoryQuery),
    ),
    _read(_TOPIC + "/groups", Operation.DESCRIBE, RouteShapes("List the groups that read a topic.", TopicGroups)),
)
