"""A Kubernetes for tests: a real API server on a real etcd, and a node that runs pods as local processes.

The API server is the one on the PATH, or the one that TIDEMILL_KUBE_APISERVER names. So logins, permissions, validation
and watches are those of a real cluster. The node replaces scheduler, kubelet and image: it binds pods, starts what
Spark's image would start, and reports their state (`tests.integration.spark.pods`).
"""

import json
import os
import shutil
import ssl
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest
from tests.support.etcd import Certificates, running_etcd
from tests.support.postgres import free_port
from tests.support.waiting import eventually

PROGRAM = "kube-apiserver"
PROGRAM_HERE = "TIDEMILL_KUBE_APISERVER"
START_S = 120
STOP_S = 30
ASK_S = 30
ADMIN, STRANGER = "token-of-the-admin", "token-of-a-stranger"
NAMESPACE = "shop"
JSON, PATCH = "application/json", "application/strategic-merge-patch+json"


class Kubernetes:
    """A running API server, and a client for it."""

    def __init__(self, port: int, certificates: Certificates) -> None:
        self.url = f"https://127.0.0.1:{port}"
        self.ca = certificates.ca
        self._context = ssl.create_default_context(cafile=certificates.ca)

    def ask(self, method: str, path: str, body: object = None, kind: str = JSON) -> dict[str, Any]:
        """Send a request as administrator. A body that is a string is sent unchanged."""
        data = body.encode() if isinstance(body, str) else None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {ADMIN}", "Content-Type": kind, "Accept": JSON}
        request = urllib.request.Request(f"{self.url}{path}", data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=ASK_S, context=self._context) as answer:
                found: dict[str, Any] = json.load(answer)
        except HTTPError as error:
            error.add_note(error.read().decode(errors="replace"))
            raise
        return found

    def ready(self) -> bool:
        """Whether it has finished loading."""
        request = urllib.request.Request(f"{self.url}/readyz", headers={"Authorization": f"Bearer {ADMIN}"})
        with suppress(OSError), urllib.request.urlopen(request, timeout=ASK_S, context=self._context) as answer:
            return bool(answer.status == 200)
        return False

    def token(self, account: str) -> str:
        """A token of a service account."""
        path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{account}/token"
        wanted = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        return str(self.ask("POST", path, wanted)["status"]["token"])

    def pods(self) -> list[dict[str, Any]]:
        """All pods."""
        found: list[dict[str, Any]] = self.ask("GET", "/api/v1/pods")["items"]
        return found


def kubeconfig(path: Path, server: Kubernetes, token: str) -> Path:
    """Write a kubeconfig file."""
    cluster = {"server": server.url, "certificate-authority": str(server.ca)}
    reported = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "here", "cluster": cluster}],
        "users": [{"name": "me", "user": {"token": token}}],
        "contexts": [{"name": "test", "context": {"cluster": "here", "user": "me", "namespace": NAMESPACE}}],
        "current-context": "test",
    }
    path.write_text(json.dumps(reported))
    return path


@contextmanager
def running_kubernetes(folder: Path) -> Iterator[Kubernetes]:
    """Run an API server with an empty namespace. All its files are below `folder`."""
    program = os.environ.get(PROGRAM_HERE) or shutil.which(PROGRAM)
    if program is None:
        pytest.skip(f"there is no {PROGRAM} on the PATH; name one with {PROGRAM_HERE}")
    certificates, port = Certificates(folder), free_port()
    with running_etcd() as etcd, (folder / "said-kubernetes").open("w") as said:
        words = _command(program, folder, certificates, port, f"http://127.0.0.1:{etcd.members[0].client}")
        with subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=said, stderr=said) as run:
            server = Kubernetes(port, certificates)
            try:
                eventually(lambda: server.ready() or run.poll() is not None, within_s=START_S, interval_s=0.2)
                assert run.poll() is None, (folder / "said-kubernetes").read_text()[-4000:]
                server.ask("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
                yield server
            finally:
                run.terminate()
                try:
                    run.wait(STOP_S)
                except subprocess.TimeoutExpired:
                    run.kill()


def _command(program: str, folder: Path, certificates: Certificates, port: int, etcd: str) -> list[str]:
    key, tokens = folder / "accounts.pem", folder / "tokens.csv"
    making = ["openssl", "genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048", "-out", str(key)]
    subprocess.run(making, check=True, capture_output=True)
    tokens.write_text(f'{ADMIN},admin,1,"system:masters"\n{STRANGER},stranger,2\n')
    options = {
        "etcd-servers": etcd,
        "bind-address": "127.0.0.1",
        "secure-port": str(port),
        "tls-cert-file": str(certificates.cert),
        "tls-private-key-file": str(certificates.key),
        "cert-dir": str(folder),
        "token-auth-file": str(tokens),
        "authorization-mode": "RBAC",
        "service-account-issuer": "https://kubernetes.default.svc",
        "service-account-key-file": str(key),
        "service-account-signing-key-file": str(key),
        "service-cluster-ip-range": "10.0.0.0/24",
        "feature-gates": "WatchList=false",  # it needs a newer etcd than Debian's
    }
    return [program, *(f"--{name}={value}" for name, value in options.items())]
