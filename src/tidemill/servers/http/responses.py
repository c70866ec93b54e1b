"""Refusals and redirections, and the headers that every answer has."""

from collections.abc import Mapping

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tidemill.servers.http.request_origin import is_numeric_or_local

API = "/api/"
_POLICY = (
    "default-src 'none'; style-src 'self'; img-src 'self'; base-uri 'none'; form-action {}; frame-ancestors 'none'"
)
CONTENT_POLICY = "content-security-policy"
FORM_POLICY = {CONTENT_POLICY: _POLICY.format("'self'")}
"""The headers of a page with a form."""
SAFETY_HEADERS = {
    CONTENT_POLICY: _POLICY.format("'none'"),
    "cache-control": "no-store",
    # With `no-referrer`, browsers would send `origin: null` with our own forms.
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
ONLY_TLS = ("strict-transport-security", "max-age=31536000")
LOGIN_METHODS = (("www-authenticate", 'Basic realm="tidemill", charset="UTF-8"'), ("www-authenticate", "Bearer"))


class SafetyHeaders:
    """Adds the security headers to every answer, unless the handler has set them.

    It does not use the framework's base class, which fails with a traceback when a client disconnects before its
    answer.
    """

    def __init__(self, app: ASGIApp, *, is_secure: bool) -> None:
        self._app = app
        self._is_secure = is_secure

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""

        async def send_safely(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in SAFETY_HEADERS.items():
                    headers.setdefault(name, value)
                if self._is_secure and not is_numeric_or_local(Headers(scope=scope).get("host", "")):
                    # For localhost it would also hold for the servers of other programs.
                    headers.setdefault(*ONLY_TLS)
            await send(message)

        await self._app(scope, receive, send_safely)


def problem(
    path: str, status: int, reason: str, headers: Mapping[str, str] | None = None, *, field: str = ""
) -> Response:
    """An error: JSON for the API, one line of text otherwise. `field` is the part of the body that it is about."""
    if path.startswith(API):
        document = {"error": reason, "field": field} if field else {"error": reason}
        return JSONResponse(document, status_code=status, headers=headers)
    return PlainTextResponse(f"{reason}\n", status_code=status, headers=headers)


def wants_page(request: Request) -> bool:
    """Whether a person opens the URL in a browser."""
    mode = request.headers.get("sec-fetch-mode")
    is_page = mode == "navigate" or (mode is None and "text/html" in request.headers.get("accept", ""))
    return is_page and request.method in {"GET", "HEAD"} and not request.url.path.startswith(API)


def login_required(request: Request, reason: str) -> Response:
    """The answer to a client that must log in: a person is sent to the login page, a program gets 401.

    A browser is not asked for a password by the scheme Basic. It would send the password with every later request.
    """
    if wants_page(request):
        return RedirectResponse("/login", status_code=303)
    answer = problem(request.url.path, 401, reason)
    if request.headers.get("sec-fetch-mode") is None:
        for name, value in LOGIN_METHODS:
            answer.headers.append(name, value)
    return answer
