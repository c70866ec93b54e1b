"""The lag of groups over time, for the history of a broker: the groups with the largest lag."""

from tidemill.broker.group_lag import GroupLags
from tidemill.broker.history import HistorySeries, HistorySource, Readings
from tidemill.security.core.resources import ResourceType

LAG_RECORDS, LAG_SECONDS = "group_lag_records", "group_lag_seconds"
GROUPS_MAX = 300
"""The most groups that have a history: those with the largest lag."""


def lag_source(lags: GroupLags) -> HistorySource:
    """Records that each group has not read, and the age of the oldest of them."""

    def read(_: float) -> Readings:
        known = lags.sample()
        return {
            LAG_RECORDS: {group: float(lag.records) for group, lag in known.items() if lag.records},
            LAG_SECONDS: {group: lag.seconds for group, lag in known.items() if lag.seconds},
        }

    return HistorySource(
        (
            HistorySeries(LAG_RECORDS, keys_max=GROUPS_MAX, resource=ResourceType.GROUP),
            HistorySeries(LAG_SECONDS, keys_max=GROUPS_MAX, is_sum=False, resource=ResourceType.GROUP),
        ),
        read,
    )
