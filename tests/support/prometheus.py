"""Debian's Prometheus: its checks of rules, and a server that scrapes a broker."""

import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from tests.support.postgres import free_port
from tests.support.waiting import eventually

STOP_S = 30
CHECK_S = 120


def promtool(*words: str, text: str | None = None) -> str:
    """Run a check, of `text` if it is given, which must succeed; returns what it printed."""
    ran = subprocess.run(["promtool", *words], input=text, capture_output=True, text=True, timeout=CHECK_S, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def check_rule_tests(rules: Path, tests: Sequence[Mapping[str, Any]], folder: Path) -> None:
    """Run tests of a rule file, in the form of `promtool test rules`."""
    path = folder / "rule-tests.yml"  # JSON is YAML
    path.write_text(json.dumps({"rule_files": [str(rules)], "evaluation_interval": "1m", "tests": list(tests)}))
    assert "SUCCESS" in promtool("test", "rules", str(path))


class Prometheus:
    """A running server."""

    def __init__(self, url: str) -> None:
        self._url = url

    def get(self, path: str, **parameters: str) -> Any:
        """The data that an endpoint of the API returns."""
        answer = httpx.get(f"{self._url}/api/v1/{path}", params=parameters, timeout=30).json()
        assert answer["status"] == "success", answer
        return answer["data"]

    def query(self, expr: str) -> list[dict[str, Any]]:
        """The series of an expression now."""
        result: list[dict[str, Any]] = self.get("query", query=expr)["result"]
        return result


@contextmanager
def running_prometheus(config: Path, data: Path) -> Iterator[Prometheus]:
    """Run a server with this configuration during the block."""
    url = f"http://127.0.0.1:{free_port()}"
    log = data.with_suffix(".log")
    with log.open("wb") as output:
        process = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={config}",
                f"--storage.tsdb.path={data}",
                f"--web.listen-address={url.removeprefix('http://')}",
            ],
            stdout=output,
            stderr=output,
        )
    try:
        eventually(lambda: _is_ready(url, process, log), "Prometheus is not ready")
        yield Prometheus(url)
    finally:
        process.terminate()
        process.wait(STOP_S)


def _is_ready(url: str, process: "subprocess.Popen[bytes]", log: Path) -> bool:
    assert process.poll() is None, log.read_text()
    try:
        return httpx.get(f"{url}/-/ready", timeout=5).status_code == 200
    except httpx.HTTPError:
        return False
