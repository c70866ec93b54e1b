"""Which API is served by whom: the one table that requests are looked up in and that ApiVersions is made from."""

from collections.abc import Iterable

from tidemill.model.errors import ProtocolViolation
from tidemill.servers.kafka.api import Api, Feature


class Router:
    """The APIs of a door by key, and the features that ApiVersions names beside them."""

    def __init__(self, apis: Iterable[Api], features: Iterable[Feature] = ()) -> None:
        self.by_key: dict[int, Api] = {}
        for api in apis:
            if api.key in self.by_key:
                raise ValueError(f"two handlers for API {api.key}")
            self.by_key[api.key] = api
        self.features = tuple(features)

    def find(self, key: int, version: int) -> Api:
        """The API that answers; there is no error answer for an unknown key or version, so the connection ends."""
        api = self.by_key.get(key)
        if api is None:
            raise ProtocolViolation(f"API {key} is not served")
        if not api.serves(version):
            raise ProtocolViolation(f"{api.name} {version} is not served")
        return api

    def listed(self) -> list[Api]:
        """What ApiVersions tells, by key."""
        return sorted(self.by_key.values(), key=lambda api: api.key)
