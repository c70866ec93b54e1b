"""What Spark on Kubernetes needs and says, in words that say what to do: it waits for ever where it could complain."""

import re
from collections.abc import Iterable, Mapping

IMAGES = ("spark.kubernetes.container.image", "spark.kubernetes.executor.container.image")
NAMESPACE = "spark.kubernetes.namespace"
IMAGE_ADVICE = f"an image of Spark with Tidemill, under `spark` in pipeline.yml or as --conf {IMAGES[0]}=..."
UNAUTHORIZED, FORBIDDEN = "401", "403"
_REFUSED = re.compile(r"Message: (.+?)\. Received status: Status\([^)]*?code=(\d+)", re.DOTALL)
ADVICE = {
    UNAUTHORIZED: "log in: the account is that of KUBECONFIG or ~/.kube/config, in a pod its service account",
    FORBIDDEN: "give the account the role that the guide on pipelines has under Kubernetes",
}


def without_image(settings: Mapping[str, str], elsewhere: Iterable[str]) -> bool:
    """Whether nobody names the image of executors; `elsewhere` are texts in which Spark looks for settings, too."""
    return not any(name in settings for name in IMAGES) and not any(
        name in text for text in elsewhere for name in IMAGES
    )


def refusal(text: str) -> str:
    """What the API server answered, with what to do; empty when it is about something else."""
    found = _REFUSED.search(text)
    if found is None:
        return ""
    message, code = found[1], found[2]
    return f"Kubernetes says: {message} ({code}); {ADVICE[code]}" if code in ADVICE else f"Kubernetes says: {message}"


def waiting(namespace: str, application: str) -> str:
    """What to say when no executor came."""
    look = f"kubectl -n {namespace} get pods -l spark-app-selector={application}"
    return f"no executor has come yet; it goes on as soon as one does. Why they do not come: {look}"
