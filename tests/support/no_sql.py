"""SQL for HTTP servers that tests run without a node: every query is refused."""

from tidemill.security.client_rights import ClientRights
from tidemill.sql.core.errors import SqlUnavailable
from tidemill.sql.core.sql_query import SqlQuery


class NoSql:
    """A broker without an engine."""

    def problem(self) -> str | None:
        return "there is no engine"

    async def ask(self, query: SqlQuery, rights: ClientRights) -> bytes:
        del rights
        raise SqlUnavailable(f"no engine for {query.text} as {query.form}")

    async def table(self, name: str, rights: ClientRights) -> bytes | None:
        del name, rights
        return None
