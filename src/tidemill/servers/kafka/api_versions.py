"""ApiVersions: what this broker serves, the first thing every client asks.

A client that asks in a version that is too new gets the answer of version 0 with UNSUPPORTED_VERSION and the range of
this one API, and asks again; that is the only error answer to a version in all of the protocol.
"""

import re
from struct import Struct
from typing import Any

from tidemill.model.errors import InvalidRequest, UnsupportedVersion
from tidemill.servers.kafka.api import Api, Call

API_VERSIONS = 18
_SOFTWARE_NAME = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
_FEATURES_OF_ZERO_FROM = 4
_ONE_API = Struct(">hihhh")


def unsupported_version(api: Api) -> bytes:
    """The body of version 0 that says which versions of ApiVersions there are."""
    return _ONE_API.pack(UnsupportedVersion.code, 1, api.key, *api.versions)


async def api_versions(call: Call, request: Any) -> Any:
    """Every API with its range, and the features in force."""
    for name in (getattr(request, "client_software_name", "x"), getattr(request, "client_software_version", "x")):
        if not _SOFTWARE_NAME.fullmatch(name):
            raise InvalidRequest("the client's software name or version is not valid")
    apis = tuple(
        call.part("ApiVersion", api_key=api.key, min_version=api.versions[0], max_version=api.versions[1])
        for api in call.router.listed()
    )
    if call.version < 3:
        return call.response(api_keys=apis)
    features = call.router.features
    # Clients of version 3 refuse features whose lowest level is 0 (KAFKA-17011).
    told = [each for each in features if each.low > 0 or call.version >= _FEATURES_OF_ZERO_FROM]
    supported = tuple(
        call.part("SupportedFeatureKey", name=each.name, min_version=each.low, max_version=each.high) for each in told
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


APIS = [Api(key=API_VERSIONS, versions=(0, 4), handle=api_versions)]
