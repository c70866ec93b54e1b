"""Topics in the console: the list, and the dialog that creates one."""

from tidemill.model.topic_settings import SETTINGS
from tidemill.security.core.resources import CLUSTER_NAME, Operation, ResourceType
from tidemill.servers.http.api.api_call import ApiCall
from tidemill.servers.http.api.api_context import ApiContext
from tidemill.servers.http.api.topic_history import BYTES_IN, topic_history
from tidemill.servers.http.api.topic_list import list_topics
from tidemill.servers.http.console import topic_pages
from tidemill.servers.http.console.charts import sparkline
from tidemill.servers.http.console.page import Page, PageHandler
from tidemill.wire.http.topics import PARTITIONS_AT_ONCE_MAX, TopicQuery

SPARK_SLOTS = 60
"""Five minutes."""


async def topics_page(context: ApiContext, call: ApiCall[TopicQuery, None]) -> Page:
    """`/topics`."""
    found = await list_topics(context, call)
    history = await topic_history(context, call.rights, [row.topic for row in found.topics], SPARK_SLOTS)
    sparks = {
        each.key: sparkline(f"bytes in of {each.key}", each.values, "byte_rate")
        for each in history.series
        if each.name == BYTES_IN and any(each.values)
    }
    settings = context.broker.settings
    values = {
        "found": found,
        "asked": call.query,
        "sparks": sparks,
        "may_create": _may_create(call) and not context.is_readonly,
        "default_partitions": settings.num_partitions,
        "default_replicas": settings.default_replication_factor,
        "partitions_max": PARTITIONS_AT_ONCE_MAX,
        "codecs": SETTINGS["compression.type"].choices,
    }
    return Page("Topics", "topics/list.html", values)


def _may_create(call: ApiCall[TopicQuery, None]) -> bool:
    """Whether the client may create topics: all of them, or those of some names."""
    rights = call.rights
    return rights.allows(Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME) or rights.allows_anywhere(
        Operation.CREATE, ResourceType.TOPIC
    )


PAGES: dict[str, PageHandler] = {"GET /topics": topics_page, **topic_pages.PAGES}
