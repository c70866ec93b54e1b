"""The plots of a report."""

from pathlib import Path

from tests.unit.pipelines.run.sample_report import LAGS, point

from tidemill.pipelines.run.core.report import TrafficReport
from tidemill.pipelines.run.plots import draw

PNG = b"\x89PNG\r\n\x1a\n"


def test_plots_are_pictures_and_nothing_is_no_picture(tmp_path: Path) -> None:
    many = [point(f"topic{n}", at, n) for n in range(12) for at in (0, 10_000)]
    drawn = draw(TrafficReport(0, 30_000, 10, many, LAGS), tmp_path)
    assert [path.name for path in drawn] == ["throughput.png", "lag.png"]
    assert all(path.read_bytes().startswith(PNG) and path.stat().st_size > 10_000 for path in drawn)
    assert draw(TrafficReport(0, 1, 1, [], ()), tmp_path) == []
