"""`python -m tidemill`, and the entry point of the command `tidemill`."""

import sys

from tidemill.cli.main import main as run_command


def main() -> None:
    """Run the command line and end with its exit code."""
    sys.exit(run_command())


if __name__ == "__main__":
    main()
