"""What a question can end with instead of an answer."""

from tidemill.model.errors import TidemillError

TOO_SLOW = "the question took longer than tidemill.sql.timeout.ms allows"


class SqlRefused(TidemillError):
    """The question cannot be answered as it is."""


class SqlBusy(TidemillError):
    """Too many questions wait already; ask again later."""


class SqlUnavailable(TidemillError):
    """This broker cannot answer questions."""
