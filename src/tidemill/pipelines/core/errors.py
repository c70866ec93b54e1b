"""What can be wrong with a query, each in one line that says what to do."""

from tidemill.model.errors import TidemillError


class PipelineError(TidemillError):
    """The query cannot go on."""


class WrongOption(PipelineError):
    """An option has no such value."""


class DataLost(PipelineError):
    """Records that the query has not read yet are gone. The line ends with one of the two below, or with what a command
    that has other words for it makes of that."""


GO_ON = "set failOnDataLoss=false to go on with what is there"
GO_ON_ANEW = "set failOnRecreation=false to go on with the new one"


SKIP_UNREADABLE = "set failOnUnreadable=false to leave such batches out"


class LayoutChanged(PipelineError):
    """A micro-batch that was written in part has other tasks now."""


class SinkFenced(PipelineError):
    """What a sink had begun was taken from it."""
