"""The errors of commands. The text is one line that says what failed and what to do next."""

from typing import ClassVar

from tidemill.model.errors import TidemillError


class CommandFailed(TidemillError):
    """The command failed."""

    exit_code: ClassVar[int] = 1


class WrongUse(CommandFailed):
    """The command was called with wrong arguments; see --help."""

    exit_code = 2
