"""The login page and what its forms send: `/login` and `/logout`."""

from collections.abc import Mapping
from urllib.parse import parse_qsl

from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from tidemill.model.errors import RequestTimedOut, SaslAuthenticationFailed
from tidemill.security.core.authorization_header import NoLogin
from tidemill.servers.http.console.rendering import render
from tidemill.servers.http.logins import HttpClient, HttpLogins
from tidemill.servers.http.responses import FORM_POLICY, problem

TEMPLATE = "login.html"
NAME_FIELD, PASSWORD_FIELD = "name", "password"
TOKEN_FIELD = "token"  # noqa: S105 -- the name of a field
"""The field of a form that has its token against forged requests."""
FORM_TYPE = "application/x-www-form-urlencoded"
FORM_BYTES_MAX = 8 * 1024
FIELDS_MAX = 8
NO_PASSWORDS = "this server has no login page, because its security protocol accepts no passwords"
EXPIRED = "The login page has expired. Please try again."
TOO_MANY = "There are too many logins at once. Please try again in a moment."
WRONG = "The user or the password is wrong."


class LoginForm:
    """The endpoints of the login page."""

    def __init__(self, logins: HttpLogins) -> None:
        self._logins = logins

    async def show(self, request: Request, _: HttpClient) -> Response:
        """`GET /login`."""
        if not self._logins.accepts_passwords:
            return problem(request.url.path, 404, NO_PASSWORDS)
        return self._page(request)

    async def log_in(self, request: Request, _: HttpClient) -> Response:
        """`POST /login`."""
        if not self._logins.accepts_passwords:
            return problem(request.url.path, 404, NO_PASSWORDS)
        fields = await _fields(request)
        if fields is None:
            return problem(request.url.path, 400, f"send a form of at most {FORM_BYTES_MAX} bytes as {FORM_TYPE}")
        name, password = fields.get(NAME_FIELD, ""), fields.get(PASSWORD_FIELD, "")
        if not self._logins.is_attempt(request.scope, fields.get(TOKEN_FIELD)):
            return self._page(request, 403, name=name, reason=EXPIRED)
        try:
            opened = await self._logins.log_in(request.scope, name, password)
        except SaslAuthenticationFailed:
            return self._page(request, 401, name=name, reason=WRONG)
        except RequestTimedOut:
            return self._page(request, 503, name=name, reason=TOO_MANY)
        return _to("/", *opened.cookies)

    async def log_out(self, request: Request, client: HttpClient) -> Response:
        """`POST /logout`."""
        fields = await _fields(request)
        if client.session_id is None:
            raise NoLogin("log in first: open /login in a browser")
        if fields is None or not self._logins.is_session_token(client.session_id, fields.get(TOKEN_FIELD)):
            return problem(request.url.path, 403, "the form has expired; open / and try again")
        return _to("/login", self._logins.log_out(request.scope))

    def _page(self, request: Request, status: int = 200, *, name: str = "", reason: str = "") -> Response:
        token, cookie = self._logins.begin_attempt(request.scope)
        fields = {"name_field": NAME_FIELD, "password_field": PASSWORD_FIELD, "token_field": TOKEN_FIELD}
        text = render(TEMPLATE, {**fields, "form_token": token, "name": name, "reason": reason})
        page = HTMLResponse(text, status_code=status, headers=FORM_POLICY)
        page.headers.append("set-cookie", cookie)
        return page


def _to(path: str, *cookies: str) -> Response:
    answer = RedirectResponse(path, status_code=303)
    for cookie in cookies:
        answer.headers.append("set-cookie", cookie)
    return answer


async def _fields(request: Request) -> Mapping[str, str] | None:
    """The fields of a form; None if it is malformed or too large, or has a field twice."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != FORM_TYPE:
        return None
    body = bytearray()
    try:
        async for part in request.stream():
            body += part
            if len(body) > FORM_BYTES_MAX:
                return None
        pairs = parse_qsl(body.decode(), keep_blank_values=True, errors="strict", max_num_fields=FIELDS_MAX)
    except (ClientDisconnect, ValueError):
        return None
    fields = dict(pairs)
    return fields if len(fields) == len(pairs) else None
