"""Refusals of Kubernetes are shown with the next step."""

import pytest

from tidemill.pipelines.run.core.kubernetes import refusal


@pytest.mark.parametrize(
    ("said", "line"),
    [
        (
            "Failure executing: POST. Message: Unauthorized. Received status: Status(apiVersion=v1, code=401",
            "Kubernetes says: Unauthorized (401); log in: the account is that of KUBECONFIG",
        ),
        (
            'Failure. Message: pods is forbidden: User "ann" cannot. Received status: Status(apiVersion=v1, code=403',
            'Kubernetes says: pods is forbidden: User "ann" cannot (403); give the account the role',
        ),
        ("Failure. Message: too large. Received status: Status(apiVersion=v1, code=413", "Kubernetes says: too large"),
        ("Connection refused", ""),
    ],
)
def test_a_refusal_of_kubernetes_names_the_next_step(said: str, line: str) -> None:
    assert refusal(said).startswith(line)
    assert bool(refusal(said)) == bool(line)
