"""`.ci/system` installs packages as root, prints the command otherwise, and waits while apt-get is locked."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SCRIPT = ROOT / ".ci" / "system"
LISTS_LOCK = "E: Could not get lock /var/lib/apt/lists/lock. It is held by process 4711 (apt-get)"
DPKG_LOCK = "E: Could not get lock /var/lib/dpkg/lock-frontend - open (11: Resource temporarily unavailable)"
WAIT_S = 60


class Machine:
    """A PATH with fake `id` and `apt-get`, a few real tools, and no Java."""

    def __init__(self, folder: Path) -> None:
        self.calls = folder / "calls"
        self.bin = folder / "bin"
        self.bin.mkdir()
        for tool in ("bash", "grep", "sleep", "cat"):
            (self.bin / tool).symlink_to(str(shutil.which(tool)))

    def program(self, name: str, text: str) -> None:
        (self.bin / name).write_text(f"#!{self.bin / 'bash'}\n{text}\n")
        (self.bin / name).chmod(0o755)

    def apt_get(self, *, fails: int = 0, error: str = "", user: int = 0) -> None:
        """An apt-get that notes its arguments and fails so many times with this error."""
        self.program("id", f"echo {user}")
        self.program(
            "apt-get",
            f'echo "$*" >> {self.calls}\nmapfile -t lines < {self.calls}\n'
            f"if [ ${{#lines[@]}} -le {fails} ]; then echo '{error}' >&2; exit 100; fi",
        )

    def run(self, *words: str, wait_s: int = 30) -> "subprocess.CompletedProcess[str]":
        environment = {
            **{key: value for key, value in os.environ.items() if key != "JAVA_HOME"},
            "PATH": str(self.bin),
            "APT_LOCK_WAIT_S": str(wait_s),
            "APT_RETRY_EVERY_S": "0.05",
        }
        command = [str(self.bin / "bash"), str(SCRIPT), *words]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=WAIT_S)

    def steps(self) -> list[str]:
        """What apt-get was asked to do: the first word after its options."""
        return [line.split()[2] for line in self.calls.read_text().splitlines()]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.mark.parametrize("error", [LISTS_LOCK, DPKG_LOCK])
def test_a_lock_is_waited_for(machine: Machine, error: str) -> None:
    machine.apt_get(fails=3, error=error)
    ran = machine.run("java")
    assert ran.returncode == 0, ran
    assert machine.steps() == ["update", "update", "update", "update", "install"]
    assert ran.stderr.count("waiting for another apt-get to release its lock") == 3
    assert "Lock::Timeout=30" in machine.calls.read_text()
    assert machine.calls.read_text().splitlines()[-1].endswith("install -y -qq default-jre-headless")


def test_the_wait_for_a_lock_is_bounded(machine: Machine) -> None:
    machine.apt_get(fails=1000, error=LISTS_LOCK)
    ran = machine.run("java", wait_s=1)
    assert ran.returncode != 0
    assert LISTS_LOCK in ran.stderr
    assert "the package manager was locked for 1 s; end the other apt-get, or set APT_LOCK_WAIT_S" in ran.stderr


def test_another_error_ends_it_at_once(machine: Machine) -> None:
    machine.apt_get(fails=1000, error="E: Unable to locate package default-jre-headless")
    ran = machine.run("java")
    assert (ran.returncode, machine.steps()) == (100, ["update"])
    assert "Unable to locate package" in ran.stderr


def test_without_root_the_command_is_printed(machine: Machine) -> None:
    machine.apt_get(user=1000)
    ran = machine.run("java")
    assert ran.returncode == 1
    expected = "missing packages: default-jre-headless; install them with: sudo apt-get install default-jre-headless\n"
    assert ran.stderr == expected
    assert not machine.calls.exists()


def test_the_tests_need_more_than_java(machine: Machine) -> None:
    machine.apt_get()
    ran = machine.run("tests")
    assert ran.returncode == 0, ran
    assert {"default-jre-headless", "kcat", "openssl", "etcd-server"} <= set(ran.stderr.split())


def test_java_is_not_installed_again(machine: Machine) -> None:
    machine.apt_get()
    machine.program("java", "true")
    ran = machine.run("java")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert not machine.calls.exists()


def test_an_unknown_purpose_is_refused(machine: Machine) -> None:
    machine.program("java", "true")
    ran = machine.run("tset")
    assert ran.returncode == 2
    assert 'unknown purpose "tset"' in ran.stderr


def test_make_run_continues_without_java(machine: Machine) -> None:
    """`make run` installs Java first; the demo itself works without it."""
    planned = subprocess.run(["make", "-n", "run"], cwd=ROOT, capture_output=True, text=True, timeout=WAIT_S)
    assert planned.stdout.index(".ci/system java ||") < planned.stdout.index("tidemill demo"), planned
