"""The worst lag of each follower, as it is written and read."""

from tidemill.replication.lag import decode_lags, encode_lags, worst
from tidemill.streams.core.insync import Lag


def test_a_report_is_read_back() -> None:
    lags = {2: Lag(0, 0.0), 3: Lag(17, 40.0)}
    assert encode_lags(lags) == "2=0:0,3=17:40"
    assert decode_lags(encode_lags(lags)) == lags
    assert decode_lags("") == {}


def test_the_worst_counts() -> None:
    reported = [{2: Lag(5, 10.0), 3: Lag(0, 0.0)}, {2: Lag(3, 90.0)}, {}]
    assert worst(reported) == {2: Lag(5, 90.0), 3: Lag(0, 0.0)}
