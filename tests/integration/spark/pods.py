"""A Kubernetes node for tests: pods are local processes.

It does the work of scheduler, kubelet and Spark's image. It binds a pod to the node and provides the files of its
config maps, its empty folders and its login. It starts the pod with the environment of its spec, as Spark's entry point
starts an executor (or any other command), and reports its end. A pod with an unknown image waits forever. Processes
have no file system of their own, so mounted paths are replaced in their commands.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.error import HTTPError

import pyspark
from tests.integration.spark.kubernetes import PATCH, Kubernetes, kubeconfig

IMAGE = "registry.example/tidemill-spark:1"
"""Spark with a Python that has Tidemill."""
NODE = "here"
ADDRESS = "127.0.0.1"
LOOK_S = 0.2
GONE = (404, 409)
"""Another client changed or deleted the object first."""
LOGIN = "/var/run/secrets/kubernetes.io/serviceaccount"
"""Where pods find their account's token. Here Spark gets the same login by KUBECONFIG."""
_VARIABLE = re.compile(r"\$\((\w+)\)")
_JAVA_OPTION = re.compile(r"SPARK_JAVA_OPT_(\d+)")


class Node:
    """Runs pods until the block ends, then stops its processes."""

    def __init__(self, server: Kubernetes, folder: Path) -> None:
        self._server = server
        self._folder = folder
        self.images = {IMAGE: Path(sys.executable).parent}
        """The folder of an image's `python3`, by image name."""
        self.claims: dict[str, Path] = {}
        """The folder of a persistent volume claim, by name."""
        self._runs: dict[str, subprocess.Popen[bytes]] = {}
        self._reported: set[str] = set()
        self._asked: set[str] = set()
        self._over = threading.Event()
        self._thread = ThreadPoolExecutor(1)
        self.started: list[str] = []
        """The names of all pods that were started."""

    def __enter__(self) -> Self:
        self._looking = self._thread.submit(self._look)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.shutdown()
        for run in self._runs.values():
            _end(run)
        self._looking.result()

    def kill(self, pod: str) -> None:
        """Kill the process at once, without a report, as the kernel does when memory runs out."""
        _end(self._runs[pod])

    def said(self, pod: str) -> str:
        """The output of a pod's process."""
        return (self._folder / pod / "said").read_text(errors="replace")

    def _look(self) -> None:
        while not self._over.wait(LOOK_S):
            for pod in self._server.pods():
                try:
                    self._tend(pod)
                except HTTPError as error:
                    if error.code not in GONE:
                        raise

    def _tend(self, pod: dict[str, Any]) -> None:
        name = pod["metadata"]["name"]
        if "deletionTimestamp" in pod["metadata"]:
            self._take_away(name, pod)
        elif name not in self._reported:
            self._reported.add(name)
            self._begin(pod)
        elif name in self._runs and self._runs[name].poll() is not None and pod["status"]["phase"] == "Running":
            code = self._runs[name].returncode
            ended = {"exitCode": code if code >= 0 else 128 - code, "reason": "Error" if code else "Completed"}
            self._tell(pod, "Failed" if code else "Succeeded", {"terminated": ended})

    def _take_away(self, name: str, pod: dict[str, Any]) -> None:
        """Ask the process once to end. The pod is deleted when it has."""
        run = self._runs.get(name)
        if run is None or run.poll() is not None:
            self._server.ask("DELETE", _path(pod), {"gracePeriodSeconds": 0})
        elif name not in self._asked:
            self._asked.add(name)
            run.terminate()

    def _begin(self, pod: dict[str, Any]) -> None:
        target = {"apiVersion": "v1", "kind": "Node", "name": NODE}
        self._server.ask("POST", f"{_path(pod)}/binding", {"metadata": pod["metadata"], "target": target})
        if pod["spec"]["containers"][0]["image"] not in self.images:
            self._tell(pod, "Pending", {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}})
            return
        self._runs[pod["metadata"]["name"]] = self._start(pod)
        self.started.append(pod["metadata"]["name"])
        self._tell(pod, "Running", {"running": {}})

    def _tell(self, pod: dict[str, Any], phase: str, state: dict[str, Any]) -> None:
        container = pod["spec"]["containers"][0]
        reported = {"name": container["name"], "image": container["image"], "imageID": "", "restartCount": 0}
        reported |= {"ready": phase == "Running", "state": state}
        status = {"phase": phase, "podIP": ADDRESS, "podIPs": [{"ip": ADDRESS}], "containerStatuses": [reported]}
        self._server.ask("PATCH", f"{_path(pod)}/status", {"status": status}, PATCH)

    def _start(self, pod: dict[str, Any]) -> subprocess.Popen[bytes]:
        container, home = pod["spec"]["containers"][0], self._folder / pod["metadata"]["name"]
        home.mkdir()
        mounted = {"https://kubernetes.default.svc": self._server.url}
        mounted |= {path: str(folder) for path, folder in self._mounted(pod, home).items()}
        environment = {each["name"]: _value(each, pod, mounted) for each in container["env"]}
        if LOGIN in mounted:
            account = pod["spec"]["serviceAccountName"]
            file = kubeconfig(Path(mounted[LOGIN]) / "config", self._server, self._server.token(account))
            environment["KUBECONFIG"] = str(file)
        words = _entry(environment) if container["args"] == ["executor"] else _words(container, environment, mounted)
        with (home / "said").open("wb") as said:
            return subprocess.Popen(
                words,
                cwd=home,
                env=_image(self.images[container["image"]]) | environment,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                start_new_session=True,
            )

    def _mounted(self, pod: dict[str, Any], home: Path) -> dict[str, Path]:
        """The local folder of each mount, by its path in the container."""
        volumes = {each["name"]: each for each in pod["spec"]["volumes"]}
        found = {}
        for mount in pod["spec"]["containers"][0]["volumeMounts"]:
            volume = volumes[mount["name"]]
            claim = volume.get("persistentVolumeClaim", {}).get("claimName")
            folder = self.claims.get(claim, home / mount["name"])
            folder.mkdir(exist_ok=True)
            found[mount["mountPath"]] = folder
            if "configMap" in volume:
                space, name = pod["metadata"]["namespace"], volume["configMap"]["name"]
                kept = self._server.ask("GET", f"/api/v1/namespaces/{space}/configmaps/{name}")
                for file, text in kept.get("data", {}).items():
                    (folder / file).write_text(text)
        return found


def _path(pod: dict[str, Any]) -> str:
    return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"


def _value(reported: dict[str, Any], pod: dict[str, Any], mounted: dict[str, str]) -> str:
    """A variable of the container."""
    if "valueFrom" in reported:
        field = reported["valueFrom"]["fieldRef"]["fieldPath"]
        return str({"status.podIP": ADDRESS, "metadata.name": pod["metadata"]["name"]}[field])
    value = str(reported.get("value", ""))
    return mounted.get(value, value)


def _words(container: dict[str, Any], environment: dict[str, str], mounted: dict[str, str]) -> list[str]:
    """The command of a container, with variables replaced as Kubernetes does."""
    words = [_VARIABLE.sub(lambda found: environment[found[1]], word) for word in container["args"]]
    for there, here in mounted.items():
        words = [here if word == there else word.replace(f"k8s://{there}", f"k8s://{here}") for word in words]
    return words


def _image(python: Path) -> dict[str, str]:
    """The environment variables that the image sets."""
    home = str(Path(pyspark.__file__).parent)
    return {"PATH": f"{python}{os.pathsep}{os.environ['PATH']}", "SPARK_HOME": home, "LANG": "C.UTF-8"}


def _entry(environment: dict[str, str]) -> list[str]:
    """The command that the entry point of Spark's image makes of the argument `executor`."""
    java = shutil.which("java")
    assert java is not None
    numbered = {int(found[1]): name for name in environment if (found := _JAVA_OPTION.fullmatch(name))}
    options = [environment[numbered[number]] for number in sorted(numbered)]
    memory = environment["SPARK_EXECUTOR_MEMORY"]
    classes = [environment.get("SPARK_CLASSPATH", ""), environment["SPARK_CONF_DIR"]]
    classes.append(str(Path(pyspark.__file__).parent / "jars" / "*"))
    reported = {
        "driver-url": environment["SPARK_DRIVER_URL"],
        "executor-id": environment["SPARK_EXECUTOR_ID"],
        "cores": environment["SPARK_EXECUTOR_CORES"],
        "app-id": environment["SPARK_APPLICATION_ID"],
        "hostname": environment["SPARK_EXECUTOR_POD_IP"],
        "resourceProfileId": environment["SPARK_RESOURCE_PROFILE_ID"],
        "podName": environment["SPARK_EXECUTOR_POD_NAME"],
    }
    backend = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
    words = [java, *options, f"-Xms{memory}", f"-Xmx{memory}", "-cp", ":".join(filter(None, classes)), backend]
    return [*words, *(word for name, value in reported.items() for word in (f"--{name}", value))]


def _end(run: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(run.pid, signal.SIGKILL)
    run.wait()
