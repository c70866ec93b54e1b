"""Names the kind of a statement, for metrics. Records are in the table `messages`, on servers by way of `ENTRY`."""

import re

from tidemill.model.storage_queries import QueryKind, QueryOperation, QueryType
from tidemill.streams.clickhouse.schema import ENTRY

RECORDS = ("messages", ENTRY)
_OPERATIONS = {
    "SELECT": QueryOperation.READ,
    "INSERT": QueryOperation.CREATE,
    "CREATE": QueryOperation.CREATE,
    "DELETE": QueryOperation.DELETE,
    "DROP": QueryOperation.DELETE,
}
_NAMES_RECORDS = re.compile(r"\b(?:FROM|INTO|TABLE)\s+messages\b")
MIGRATION = QueryKind(QueryOperation.UPDATE, QueryType.LOOKUP)
STORE_ROWS = QueryKind(QueryOperation.CREATE, QueryType.RANGE)


def kind_of_statement(sql: str) -> QueryKind:
    """What a statement does. One about records reads or changes a range of offsets; others look something up."""
    first = sql.split(maxsplit=1)[0] if sql else ""
    operation = _OPERATIONS.get(first, QueryOperation.UPDATE)
    return QueryKind(operation, QueryType.RANGE if _NAMES_RECORDS.search(sql) else QueryType.LOOKUP)


def kind_of_insert(table: str) -> QueryKind:
    """The insert of a block of rows."""
    return STORE_ROWS if table in RECORDS else STORE_ROWS._replace(type=QueryType.LOOKUP)
