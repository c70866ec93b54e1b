"""Errors of a query. Each is one line that says what to do."""

from tidemill.model.errors import TidemillError


class PipelineError(TidemillError):
    """The query cannot continue."""


class WrongOption(PipelineError):
    """An option has an invalid value."""


class DataLost(PipelineError):
    """Records were deleted before the query read them.

    The message ends with one of the two constants below. A command replaces it by its own option.
    """


GO_ON = "set failOnDataLoss=false to continue with the records that are left"
GO_ON_ANEW = "set failOnRecreation=false to continue with the new topic"


SKIP_UNREADABLE = "set failOnUnreadable=false to skip such batches"


class LayoutChanged(PipelineError):
    """A partly written micro-batch has another number of tasks now."""


class SinkFenced(PipelineError):
    """Another driver took the sink's transactional id, or a transaction of the sink was aborted."""
