"""Checks settings and shortens errors of Spark on Kubernetes, where Spark would wait forever instead of failing."""

import re
from collections.abc import Iterable, Mapping

IMAGES = ("spark.kubernetes.container.image", "spark.kubernetes.executor.container.image")
NAMESPACE = "spark.kubernetes.namespace"
IMAGE_ADVICE = f"an image of Spark with Tidemill, under `spark` in pipeline.yml or as --conf {IMAGES[0]}=..."
UNAUTHORIZED, FORBIDDEN = "401", "403"
_REFUSED = re.compile(r"Message: (.+?)\. Received status: Status\([^)]*?code=(\d+)", re.DOTALL)
ADVICE = {
    UNAUTHORIZED: "log in: the account is that of KUBECONFIG or ~/.kube/config, in a pod its service account",
    FORBIDDEN: "give the account the role in the pipelines guide, section Kubernetes",
}


def without_image(settings: Mapping[str, str], elsewhere: Iterable[str]) -> bool:
    """Whether no setting names the executors' image. `elsewhere` are other texts in which Spark looks for settings."""
    return not any(name in settings for name in IMAGES) and not any(
        name in text for text in elsewhere for name in IMAGES
    )


def refusal(text: str) -> str:
    """The API server's refusal with the next step; empty when the text has none."""
    found = _REFUSED.search(text)
    if found is None:
        return ""
    message, code = found[1], found[2]
    return f"Kubernetes says: {message} ({code}); {ADVICE[code]}" if code in ADVICE else f"Kubernetes says: {message}"


def waiting(namespace: str, application: str) -> str:
    """The message when no executor has started."""
    look = f"kubectl -n {namespace} get pods -l spark-app-selector={application}"
    return f"no executor has started yet; the pipeline continues when one does. To see why none starts: {look}"
