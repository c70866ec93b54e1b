"""Finds the Java that Spark would use, and says what to do when it is missing or too old.

Spark reports either in fifty lines. This module does not import PySpark, so that `tidemill doctor` can use it.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

from tidemill.pipelines.errors import PipelineError

OLDEST = 17
ANSWER_S = 30.0
INSTALL = {
    "apt-get": "apt-get install openjdk-17-jre-headless",
    "dnf": "dnf install java-17-openjdk-headless",
    "brew": "brew install openjdk@17",
}


class JavaMissing(PipelineError):
    """Java is missing or too old to run Spark."""


class Java(NamedTuple):
    """The Java that was found, and its problem; an empty string means no problem."""

    found: str
    problem: str


def look() -> Java:
    """Check the Java that Spark would use: the one of JAVA_HOME, else the first on the PATH."""
    home = os.environ.get("JAVA_HOME")
    program = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if program is None or not Path(program).exists():
        where = f"JAVA_HOME is {home}, which has no bin/java" if home else "there is no java on the PATH"
        return Java("not found", where)
    try:
        said = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=ANSWER_S, check=False)  # noqa: S603 -- the user's own Java
    except (OSError, subprocess.TimeoutExpired) as error:
        return Java("not found", f"{program} does not run: {error}")
    version = re.search(r'version "(?:1\.)?(\d+)[^"]*"', said.stderr)
    if version is None:
        return Java("of unknown version", f"{program} -version prints no version")
    if int(version[1]) < OLDEST:
        return Java(version[0], f"{program} is Java {version[1]}")
    return Java(version[0], "")


def advice() -> str:
    """The next step, with the command of this machine's package manager."""
    command = next((line for manager, line in INSTALL.items() if shutil.which(manager)), INSTALL["apt-get"])
    return f"Spark needs Java {OLDEST} or newer: {command}, or set JAVA_HOME to one"


def check() -> None:
    """Report a missing or old Java in one line, before Spark reports it in fifty."""
    if problem := look().problem:
        raise JavaMissing(f"{problem}; {advice()}")
