"""The errors of SQL queries."""

from tidemill.model.errors import TidemillError

TOO_SLOW = "the query took longer than tidemill.sql.timeout.ms allows"


class SqlRefused(TidemillError):
    """The query is rejected as it is."""


class SqlBusy(TidemillError):
    """Too many queries wait already; try again later."""


class SqlUnavailable(TidemillError):
    """This broker cannot run queries."""
