"""The static files of the console: they ship with the package, and their path has a digest of their content."""

from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from tidemill.servers.http.api.api_problem import ApiProblem
from tidemill.servers.http.logins import HttpClient
from tidemill.servers.http.responses import problem

PATH = "/static/{name}"
CACHE = {"cache-control": "public, max-age=31536000, immutable"}
MEDIA_TYPES = {"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8", "svg": "image/svg+xml"}
DIGEST_CHARS = 12


class StaticFile(NamedTuple):
    """One file."""

    content: bytes
    media_type: str
    path: str


@cache
def _files() -> Mapping[str, StaticFile]:
    found = {}
    for each in files(__package__).joinpath("static").iterdir():
        stem, _, suffix = each.name.rpartition(".")
        if suffix in MEDIA_TYPES:
            content = each.read_bytes()
            served = f"{stem}.{sha256(content).hexdigest()[:DIGEST_CHARS]}.{suffix}"
            found[each.name] = StaticFile(content, MEDIA_TYPES[suffix], served)
    return found


def static_path(name: str) -> str:
    """The path of a static file."""
    return PATH.format(name=_files()[name].path)


async def serve_static(request: Request, _: HttpClient) -> Response:
    """`GET /static/NAME`."""
    wanted = request.path_params["name"]
    for each in _files().values():
        if each.path == wanted:
            return Response(each.content, media_type=each.media_type, headers=CACHE)
    error = ApiProblem(404, "the file does not exist; reload the page")
    return problem(request.url.path, error.status, str(error))
