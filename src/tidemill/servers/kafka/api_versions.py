"""ApiVersions: the APIs that this broker serves. It is the first request of every client.

A client that uses a version that is too new gets a response of version 0 with UNSUPPORTED_VERSION and the versions of
ApiVersions, and tries again. No other API responds to an unknown version.
"""

import re
from struct import Struct
from typing import TYPE_CHECKING

from tidemill.model.errors import InvalidRequest, UnsupportedVersion
from tidemill.servers.kafka.api import Api, Call

if TYPE_CHECKING:
    from kio.schema.api_versions.v4.request import ApiVersionsRequest
    from kio.schema.api_versions.v4.response import ApiVersionsResponse

API_VERSIONS = 18
_SOFTWARE_NAME = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
_FEATURES_OF_ZERO_FROM = 4
_ONE_API = Struct(">hihhh")


def unsupported_version(api: Api) -> bytes:
    """A response body of version 0 with the supported versions of ApiVersions."""
    return _ONE_API.pack(UnsupportedVersion.code, 1, api.key, *api.versions)


async def api_versions(call: Call["ApiVersionsResponse"], request: "ApiVersionsRequest") -> "ApiVersionsResponse":
    """Every API with its range, and the features in force."""
    for name in (getattr(request, "client_software_name", "x"), getattr(request, "client_software_version", "x")):
        if not _SOFTWARE_NAME.fullmatch(name):
            raise InvalidRequest(
                f"client software name or version {name[:60]!r} is not valid; use letters, digits, '-' and '.'"
            )
    apis = tuple(
        call.part("ApiVersion", api_key=api.key, min_version=api.versions[0], max_version=api.versions[1])
        for api in call.apis.listed()
    )
    if call.version < 3:
        return call.response(api_keys=apis)
    features = call.apis.features
    # Clients of version 3 refuse features whose lowest level is 0 (KAFKA-17011).
    listed = [each for each in features if each.low > 0 or call.version >= _FEATURES_OF_ZERO_FROM]
    supported = tuple(
        call.part("SupportedFeatureKey", name=each.name, min_version=each.low, max_version=each.high) for each in listed
    )
    finalized = tuple(
        call.part(
            "FinalizedFeatureKey", name=each.name, max_version_level=each.in_force, min_version_level=each.in_force
        )
        for each in features
        if each.in_force > 0
    )
    return call.response(
        api_keys=apis,
        supported_features=supported,
        finalized_features=finalized,
        finalized_features_epoch=1 if finalized else -1,
    )
