"""What goes wrong on the command line: one line that says what happened and what to do next."""

from typing import ClassVar

from tidemill.model.errors import TidemillError


class CommandFailed(TidemillError):
    """The command did not succeed."""

    exit_code: ClassVar[int] = 1


class WrongUse(CommandFailed):
    """The command was not used as it can be; see --help."""

    exit_code = 2
