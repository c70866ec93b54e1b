"""Whole commands of pipelines on Kubernetes: its own API server, rights as the guide gives them, pods as processes."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml
from tests.integration.spark.commands import END_S, make_pipeline, only_rows, order
from tests.integration.spark.kubernetes import NAMESPACE, STRANGER, Kubernetes, kubeconfig, running_kubernetes
from tests.integration.spark.pods import IMAGE, Node
from tests.integration.spark.topics import Outside
from tests.support.doc_pages import ROOT, blocks
from tests.support.waiting import eventually

from tidemill.pipelines.spark.queries import PYTHON_ADVICE
from tidemill.pipelines.spec.folder import SPEC

PATHS = {
    "ServiceAccount": f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts",
    "Role": f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}/roles",
    "RoleBinding": f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}/rolebindings",
    "PersistentVolumeClaim": f"/api/v1/namespaces/{NAMESPACE}/persistentvolumeclaims",
    "Deployment": f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments",
}
ACCOUNT = "tidemill"
LEAN = {
    "spark.kubernetes.namespace": NAMESPACE,
    "spark.kubernetes.container.image": IMAGE,
    "spark.kubernetes.authenticate.executor.serviceAccountName": ACCOUNT,
    "spark.driver.host": "127.0.0.1",
    "spark.executor.instances": "2",
    "spark.executor.memory": "512m",
    "spark.sql.shuffle.partitions": "2",
}
CLAIM = {
    "spark.kubernetes.executor.volumes.persistentVolumeClaim.shop.options.claimName": "shop",
    "spark.kubernetes.executor.volumes.persistentVolumeClaim.shop.mount.path": "/shop",
}
"""As the guide has it."""
GATE = '''\
"""Orders with their prices, when the test opens the gate."""

import time
from pathlib import Path

from pyspark import TaskContext
from pyspark.sql import DataFrame

HOME = Path({home!r})


def priced(orders: DataFrame) -> DataFrame:
    def wait(batches):
        (HOME / f"task-{{TaskContext.get().partitionId()}}").touch()
        deadline = time.monotonic() + 200
        while not (HOME / "gate").exists() and time.monotonic() < deadline:
            time.sleep(0.1)
        yield from batches

    rows = orders.selectExpr("item", "quantity", "price * quantity as total")
    return rows.mapInArrow(wait, rows.schema)
'''

LINE_CHARS_MAX = 400

pytestmark = [pytest.mark.timeout(4 * END_S), pytest.mark.long]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubernetes]:
    """An API server with the rights that the guide gives."""
    with running_kubernetes(tmp_path_factory.mktemp("kubernetes")) as server:
        for each in manifests():
            server.ask("POST", PATHS[each["kind"]], each)
        yield server


def manifests() -> list[dict[str, Any]]:
    """What the guide says to apply."""
    page = ROOT / "docs" / "guides" / "pipelines.md"
    texts = [block.text for block in blocks(page) if block.kind == "yaml" and "apiVersion" in block.text]
    return [each for text in texts for each in yaml.safe_load_all(text)]


@pytest.fixture
def node(cluster: Kubernetes, tmp_path: Path) -> Iterator[Node]:
    home = tmp_path / "node"
    home.mkdir()
    with Node(cluster, home) as running:
        yield running


def started(cluster: Kubernetes, shop: Path, config: Path, *more: str) -> "subprocess.Popen[str]":
    """The command, run outside of a virtual environment."""
    words = [
        sys.executable,
        "-m",
        "tidemill",
        "pipeline",
        "run",
        str(shop),
        "--once",
        "--master",
        f"k8s://{cluster.url}",
    ]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_")}
    environment |= {"KUBECONFIG": str(config), "PATH": "/usr/local/bin:/usr/bin:/bin"}
    return subprocess.Popen(
        [*words, *more], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def with_settings(shop: Path, settings: dict[str, str]) -> None:
    with (shop / SPEC).open("a") as file:
        file.write(yaml.safe_dump({"spark": settings}))


def test_an_executor_that_dies_is_replaced_and_no_row_is_lost_or_doubled(
    cluster: Kubernetes, node: Node, outside: Outside, tmp_path: Path
) -> None:
    source, sink = outside.create("kubernetes-orders"), outside.create("kubernetes-rows")
    orders = [order(number) for number in range(30)]
    outside.write(source, ({"value": json.dumps(each), "partition": each["quantity"] % 2} for each in orders))
    shop = tmp_path / "shop"
    make_pipeline(shop, outside.servers, source, sink)
    spec = (shop / SPEC).read_text().replace("from: revenue", "from: priced").replace("mode: update", "mode: append")
    (shop / SPEC).write_text(spec)
    (shop / "transformations" / "priced.py").write_text(GATE.format(home=str(tmp_path)))
    with_settings(shop, LEAN)
    with started(cluster, shop, kubeconfig(tmp_path / "config", cluster, cluster.token(ACCOUNT))) as run:
        try:
            eventually(lambda: len(list(tmp_path.glob("task-*"))) == 2, within_s=END_S)
            node.kill(node.started[0])
            eventually(lambda: len(node.started) == 3, within_s=END_S)
            (tmp_path / "gate").touch()
            said, _ = run.communicate(timeout=END_S)
        finally:
            run.kill()
    assert run.returncode == 0, said
    wanted = sorted((each["item"], each["quantity"], each["quantity"] * 1.5) for each in orders)
    rows = [json.loads(message.value()) for message in outside.read(sink)]
    assert sorted((each["item"], each["quantity"], each["total"]) for each in rows) == wanted
    table = pq.read_table(shop / "lake" / "priced").to_pylist()
    assert sorted((each["item"], each["quantity"], each["total"]) for each in table) == wanted
    eventually(lambda: not cluster.pods())  # what Spark made it took away


@pytest.mark.parametrize(
    ("token", "line"),
    [
        (
            "of-no-user",
            "Kubernetes says: Unauthorized (401); log in: the account is that of KUBECONFIG or ~/.kube/config",
        ),
        (STRANGER, 'Kubernetes says: configmaps is forbidden: User "stranger" cannot create resource "configmaps"'),
    ],
)
def test_a_refused_account_gives_an_error_of_one_line(
    token: str, line: str, cluster: Kubernetes, outside: Outside, topic: str, tmp_path: Path
) -> None:
    shop = tmp_path / "shop"
    make_pipeline(shop, outside.servers, topic, "nowhere")
    with_settings(shop, LEAN)
    with started(cluster, shop, kubeconfig(tmp_path / "config", cluster, token)) as run:
        said, _ = run.communicate(timeout=END_S)
    assert run.returncode == 1
    [reported] = said.splitlines()
    assert reported.startswith(f"error: Spark did not start on k8s://{cluster.url}: {line}")
    assert len(reported) < LINE_CHARS_MAX


def test_missing_executors_are_reported_and_ctrl_c_removes_them(
    cluster: Kubernetes, node: Node, outside: Outside, topic: str, tmp_path: Path
) -> None:
    outside.write_values(topic, range(3))
    shop = tmp_path / "shop"
    make_pipeline(shop, outside.servers, topic, "nowhere")
    with_settings(shop, LEAN | {"spark.kubernetes.container.image": "registry.example/misspelt:1"})
    config = kubeconfig(tmp_path / "config", cluster, cluster.token(ACCOUNT))
    with started(cluster, shop, config) as run:
        assert run.stdout is not None
        reported = run.stdout.readline()
        asked = [pod["metadata"]["labels"]["spark-app-selector"] for pod in cluster.pods()]
        run.send_signal(signal.SIGINT)
        rest, _ = run.communicate(timeout=END_S)
    look = f"kubectl -n {NAMESPACE} get pods -l spark-app-selector={asked[0]}"
    assert (
        reported
        == f"no executor has started yet; the pipeline continues when one does. To see why none starts: {look}\n"
    )
    assert (run.returncode, rest) == (0, "")
    assert not node.started
    eventually(lambda: not cluster.pods())


def test_an_image_whose_python_has_no_tidemill_gives_an_error_of_one_line(
    cluster: Kubernetes, node: Node, outside: Outside, topic: str, tmp_path: Path
) -> None:
    outside.write_values(topic, range(3))
    shop, image = tmp_path / "shop", "registry.example/spark-alone:1"
    make_pipeline(shop, outside.servers, topic, "nowhere")
    with_settings(shop, LEAN | {"spark.kubernetes.container.image": image, "spark.executor.instances": "1"})
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "alone"], check=True)
    node.images[image] = tmp_path / "alone" / "bin"
    with started(cluster, shop, kubeconfig(tmp_path / "config", cluster, cluster.token(ACCOUNT))) as run:
        said, _ = run.communicate(timeout=END_S)
    assert run.returncode == 1
    assert said.splitlines()[-1].endswith(f": No module named 'pyarrow': {PYTHON_ADVICE}"), said


def test_the_driver_runs_in_a_pod_as_the_guide_has_it(
    cluster: Kubernetes, node: Node, outside: Outside, tmp_path: Path
) -> None:
    source, sink = outside.create("kubernetes-more-orders"), outside.create("kubernetes-more-rows")
    outside.write(source, ({"value": json.dumps(order(number))} for number in range(10)))
    shop = node.claims["shop"] = tmp_path / "shop"
    make_pipeline(shop, outside.servers, source, sink)
    only_rows(shop)
    with_settings(shop, {name: value for name, value in LEAN.items() if name != "spark.driver.host"} | CLAIM)
    [deployment] = [each for each in manifests() if each["kind"] == "Deployment"]
    template = deployment["spec"]["template"]
    pod = template | {"metadata": template["metadata"] | {"name": "shop-driver"}}
    driver = cluster.ask("POST", f"/api/v1/namespaces/{NAMESPACE}/pods", pod)
    eventually(lambda: len(outside.read(sink)) == 10, within_s=END_S)
    executors = [each for each in cluster.pods() if each["metadata"]["name"] != "shop-driver"]
    owners = [owner["uid"] for each in executors for owner in each["metadata"]["ownerReferences"]]
    assert owners == [driver["metadata"]["uid"]] * 2
    volumes = [volume.get("persistentVolumeClaim") for each in executors for volume in each["spec"]["volumes"]]
    assert [each["claimName"] for each in volumes if each] == ["shop"] * 2
    cluster.ask("DELETE", f"/api/v1/namespaces/{NAMESPACE}/pods/shop-driver")
    eventually(lambda: not cluster.pods(), within_s=END_S)
    assert json.loads((shop / ".tidemill" / "status.json").read_text())["state"] == "stopped"
