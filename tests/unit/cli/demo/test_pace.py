"""The rate of orders."""

from tidemill.cli.demo.pace import Pace


def test_the_pace_of_the_last_second_and_of_the_whole_run() -> None:
    pace = Pace(10.0)
    assert pace.lately(10.5, 100) == 0.0
    assert pace.lately(11.0, 200) == 200.0
    assert pace.lately(11.9, 900) == 200.0
    assert pace.lately(13.0, 300) == 50.0
    # The last orders were long ago when the pipeline is through with them.
    assert pace.overall(25.0, 3_000) == 200.0
    assert pace.overall(10.0, 0) == 0.0
