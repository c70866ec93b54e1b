"""`tidemill schedule`: an alias of `tidemill timeline schedule`."""

from tidemill.cli.timeline_messages import schedule

__all__ = ["schedule"]
