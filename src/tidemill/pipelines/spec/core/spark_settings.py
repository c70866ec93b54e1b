"""Settings of the Spark session, as `pipeline.yml` and `--conf` give them."""

from collections.abc import Iterable

from tidemill.pipelines.errors import WrongOption

ELSEWHERE = {"spark.master": "--master", "spark.remote": "--remote"}


def parse_settings(given: Iterable[str]) -> dict[str, str]:
    """Parse Spark settings from a command line: name=value."""
    settings = {}
    for each in given:
        name, found, value = each.partition("=")
        if not found:
            raise WrongOption(f"--conf is {each}; write a setting of Spark: spark.executor.memory=2g")
        if wrong := wrong_setting(name):
            raise WrongOption(f"--conf {name} {wrong}")
        settings[name] = value
    return settings


def wrong_setting(name: str) -> str:
    """The problem with a setting's name: it is not a Spark setting, or a command has another option for it."""
    if name in ELSEWHERE:
        return f"is not set like this; give {ELSEWHERE[name]}"
    return "" if name.startswith("spark.") else "is not a Spark setting; their names look like spark.executor.memory"
