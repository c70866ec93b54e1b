"""Consumer groups in the console."""

from tidemill.servers.http.console.page import PageHandler

PAGES: dict[str, PageHandler] = {}
