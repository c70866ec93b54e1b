"""The entry point of `python -m tidemill` and of the command `tidemill`."""

import sys

from tidemill.cli.main import main as run_command


def main() -> None:
    """Run the command line and exit with its code."""
    sys.exit(run_command())


if __name__ == "__main__":
    main()
