"""The Java that would run Spark: which one it is, and what to do when it is missing or too old.

Spark says either in fifty lines. Nothing here needs PySpark, so that `tidemill doctor` can ask, too.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

from tidemill.pipelines.core.errors import PipelineError

OLDEST = 17
ANSWER_S = 30.0
INSTALL = {
    "apt-get": "apt-get install openjdk-17-jre-headless",
    "dnf": "dnf install java-17-openjdk-headless",
    "brew": "brew install openjdk@17",
}


class JavaMissing(PipelineError):
    """There is no Java to run Spark with, or it is too old."""


class Java(NamedTuple):
    """What was found, and what is wrong with it; an empty string when nothing is."""

    found: str
    problem: str


def look() -> Java:
    """Ask the Java that Spark would take: that of JAVA_HOME, else the first on the PATH."""
    home = os.environ.get("JAVA_HOME")
    program = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if program is None or not Path(program).exists():
        where = f"JAVA_HOME is {home}, where there is no bin/java" if home else "there is no java on the PATH"
        return Java("not found", where)
    try:
        said = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=ANSWER_S, check=False)  # noqa: S603 -- the user's own Java
    except (OSError, subprocess.TimeoutExpired) as error:
        return Java("not found", f"{program} does not run: {error}")
    version = re.search(r'version "(?:1\.)?(\d+)[^"]*"', said.stderr)
    if version is None:
        return Java("of unknown version", f"{program} does not tell its version")
    if int(version[1]) < OLDEST:
        return Java(version[0], f"{program} is Java {version[1]}")
    return Java(version[0], "")


def advice() -> str:
    """What to do about it, with the command of this machine's package manager."""
    command = next((line for manager, line in INSTALL.items() if shutil.which(manager)), INSTALL["apt-get"])
    return f"Spark needs Java {OLDEST} or newer: {command}, or set JAVA_HOME to one"


def check() -> None:
    """Say in one line that Java is missing or too old, before Spark says it in fifty."""
    if problem := look().problem:
        raise JavaMissing(f"{problem}; {advice()}")
