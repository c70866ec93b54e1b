"""`tidemill schedule`: the short way to `tidemill timeline schedule`."""

from tidemill.cli.timeline_messages import schedule

__all__ = ["schedule"]
