"""Topics in the console."""

from tidemill.servers.http.api.api_call import ApiCall
from tidemill.servers.http.api.api_context import ApiContext
from tidemill.servers.http.api.topics import list_topics
from tidemill.servers.http.console.page import Page, PageHandler
from tidemill.wire.http.topics import TopicQuery


async def topics_page(context: ApiContext, call: ApiCall[TopicQuery, None]) -> Page:
    """`/topics`."""
    return Page("Topics", "topics/list.html", {"found": await list_topics(context, call), "asked": call.query})


PAGES: dict[str, PageHandler] = {"GET /topics": topics_page}
