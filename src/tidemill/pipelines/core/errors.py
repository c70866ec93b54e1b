"""What can be wrong with a query, each in one line that says what to do."""

from tidemill.model.errors import TidemillError


class PipelineError(TidemillError):
    """The query cannot go on."""


class WrongOption(PipelineError):
    """An option has no such value."""


class DataLost(PipelineError):
    """Records that the query has not read yet are gone."""


class LayoutChanged(PipelineError):
    """A micro-batch that was written in part has other tasks now."""


class SinkFenced(PipelineError):
    """What a sink had begun was taken from it."""
