"""Topics for tests of the console: topics that exist, and what their API says."""

from typing import Any

import httpx
from confluent_kafka.admin import AdminClient, NewTopic

WAIT_S = 30.0
API = "/api/v1/topics"


def create(bootstrap: str, *topics: str, partitions: int = 1, replicas: int = 1, **settings: str) -> None:
    """Create topics. Underscores in names of settings stand for dots."""
    config = {name.replace("_", "."): value for name, value in settings.items()}
    admin = AdminClient({"bootstrap.servers": bootstrap})  # it must live until the topics are there
    made = admin.create_topics([NewTopic(each, partitions, replicas, config=config) for each in topics])
    for future in made.values():
        future.result(WAIT_S)


def listed(client: httpx.Client, **query: Any) -> dict[str, Any]:
    """A page of the list."""
    answer = client.get(API, params=query)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def names(client: httpx.Client, **query: Any) -> list[str]:
    """The names of a page of the list."""
    return [each["topic"] for each in listed(client, **query)["topics"]]


def setting(client: httpx.Client, topic: str, name: str) -> dict[str, Any]:
    """One setting of a topic."""
    rows = client.get(f"{API}/{topic}/settings").json()["settings"]
    return next(each for each in rows if each["name"] == name)


def page(client: httpx.Client, path: str, status: int = 200, **query: Any) -> str:
    """A page of the console."""
    answer = client.get(path, params=query, headers={"accept": "text/html"})
    assert answer.status_code == status, answer.text
    return answer.text
