"""The log in the console: recent warnings and errors of all brokers."""

from tidemill.servers.http.api.api_call import ApiCall
from tidemill.servers.http.api.api_context import ApiContext
from tidemill.servers.http.api.logs import list_events
from tidemill.servers.http.console.page import Page, PageHandler
from tidemill.wire.http.logs import LogQuery


async def logs_page(context: ApiContext, call: ApiCall[LogQuery, None]) -> Page:
    """`/logs`."""
    brokers = sorted({context.broker.node_id, *context.broker.view.image.brokers})
    values = {"found": await list_events(context, call), "asked": call.query, "brokers": brokers}
    return Page("Logs", "logs/page.html", values)


PAGES: dict[str, PageHandler] = {"GET /logs": logs_page}
