"""Finds out who has sent a request, and keeps the sessions of browsers.

A request has one login: the header `authorization`, the cookie of a session, or the certificate of its connection, in
this order. Another broker of the cluster proves itself with a token.
"""

from collections.abc import Callable
from typing import NamedTuple

from starlette.types import Scope

from tidemill.model.errors import SaslAuthenticationFailed
from tidemill.model.listeners import HTTP, ServerSecurity
from tidemill.security.client_rights import ClientRights
from tidemill.security.core.authorization_header import NoLogin
from tidemill.security.core.peer_token import PeerTokenRejected
from tidemill.security.core.plain import PlainLogin, check_lengths
from tidemill.security.core.principal import ANONYMOUS, Principal, user
from tidemill.security.security import Security
from tidemill.servers.http.bounded_protocol import CERTIFICATE_USER
from tidemill.servers.http.core.cookies import cookie_header, cookie_name, cookie_value
from tidemill.servers.http.core.form_tokens import ATTEMPT_S, LoginAttempt, form_token, is_form_token, parse_attempt
from tidemill.servers.http.core.route_access import LoginNeed
from tidemill.servers.http.core.sessions import BrowserSession, SessionTable

AUTHORIZATION, PEER = b"authorization", b"tidemill-peer"
LOGIN_PAGE = "LOGIN PAGE"
"""The mechanism of a login on the login page, in the audit log."""
ID_BYTES = 32
NEEDS_LOGIN = (
    "this server requires a login: send a user and a password (Basic) or a token (Bearer), or open /login in a browser"
)
NEEDS_CERTIFICATE = "this server requires a client certificate"
CHANGED = "changed"
"""Equals the credentials of no user."""
LOGIN_FORM, SESSION_FORM = "login", "session"
"""The purposes of form tokens."""


class HttpClient(NamedTuple):
    """The client of a request. `session_id` is None if it has not logged in on the login page."""

    rights: ClientRights
    session_id: str | None = None
    expires_ms: int | None = None
    """The end of the login by the wall clock; None if it has none, or if it is that of the session."""
    credentials: object = None
    """Those of the user at the login, if it was by a password without a session."""

    @property
    def has_logged_in(self) -> bool:
        """Whether the client has a name."""
        return self.rights.principal is not ANONYMOUS


class OpenedSession(NamedTuple):
    """A login on the login page that was right."""

    session_id: str
    cookies: tuple[str, ...]
    """The values of `set-cookie`."""


class HttpLogins:
    """The logins of one HTTP server.

    `token_text` makes random text of a number of bytes, `steady_s` is a clock that cannot be set.
    """

    def __init__(
        self,
        security: Security,
        server: ServerSecurity,
        port: int,
        *,
        token_text: Callable[[int], str],
        steady_s: Callable[[], float],
    ) -> None:
        self.protocol = server.protocol
        self.is_secure = server.uses_tls
        self.accepts_passwords = server.protocol.startswith("SASL_")
        self.requires_login = server.authenticates
        self._security = security
        self._token_text = token_text
        self._steady_s = steady_s
        self._key = token_text(ID_BYTES).encode()
        self._lifetime_s = server.settings.tidemill_http_session_ms // 1000
        self._sessions = SessionTable(self._lifetime_s)
        self._session_cookie = cookie_name("session", port, is_secure=self.is_secure)
        self._attempt_cookie = cookie_name("login", port, is_secure=self.is_secure)

    async def client(self, scope: Scope, need: LoginNeed, purpose: str, body: bytes = b"") -> HttpClient:
        """The client of a request. SaslAuthenticationFailed: it needs a login and has none, or a wrong one.

        `purpose` and `body` are what the token of a broker must be made for.
        """
        host = str(scope["client"][0]) if scope["client"] else ""
        if need is LoginNeed.BROKER:
            return self._broker(scope, purpose, body, host)
        if need is LoginNeed.NONE:
            return self._client(ANONYMOUS, host)
        if self.accepts_passwords:
            authorization = _single(scope, AUTHORIZATION)
            if authorization is not None:
                return await self._client_of_header(authorization, host)
            session_id = self._session_id(scope)
            if session_id is not None and (name := self._session_user(session_id)) is not None:
                return HttpClient(ClientRights(self._security, user(name), host), session_id)
        certificate_user: Principal = scope["state"].get(CERTIFICATE_USER, ANONYMOUS)
        if certificate_user is ANONYMOUS and self.requires_login and need is LoginNeed.LOGIN:
            raise NoLogin(NEEDS_LOGIN if self.accepts_passwords else NEEDS_CERTIFICATE)
        return self._client(certificate_user, host)

    async def log_in(self, scope: Scope, name: str, password: str) -> OpenedSession:
        """Log in with a password, and open a new session in place of the old one."""
        host = str(scope["client"][0]) if scope["client"] else ""
        check_lengths(name, password)
        record = self._security.users.find(name)  # before the check: a change during the check ends the session
        await self._security.request_login.check(PlainLogin(name, password), host, HTTP)
        if record is None:
            raise SaslAuthenticationFailed("the user was created during the login")
        self.log_out(scope)
        self._security.audit.login_succeeded(user(name), host, LOGIN_PAGE, HTTP)
        session_id = self._token_text(ID_BYTES)
        self._sessions.open(session_id, name, record.credentials, self._steady_s())
        return OpenedSession(
            session_id,
            (
                self._cookie(self._session_cookie, session_id, self._lifetime_s),
                self._cookie(self._attempt_cookie, "", 0),
            ),
        )

    def log_out(self, scope: Scope) -> str:
        """End the session of a request, if it has one; the value of `set-cookie`."""
        session_id = self._session_id(scope)
        if session_id is not None:
            self._sessions.end(session_id)
        return self._cookie(self._session_cookie, "", 0)

    def begin_attempt(self, scope: Scope) -> tuple[str, str]:
        """The token of a login form, and the value of `set-cookie`. A browser keeps one attempt for all its tabs."""
        attempt = self._attempt(scope) or LoginAttempt(int(self._steady_s()), self._token_text(ID_BYTES))
        token = form_token(self._key, LOGIN_FORM, str(attempt))
        return token, self._cookie(self._attempt_cookie, str(attempt), ATTEMPT_S)

    def is_attempt(self, scope: Scope, token: str | None) -> bool:
        """Whether the token of a login form belongs to this browser."""
        attempt = self._attempt(scope)
        return attempt is not None and is_form_token(self._key, LOGIN_FORM, str(attempt), token)

    def session_token(self, session_id: str) -> str:
        """The token of forms and of scripts in a session."""
        return form_token(self._key, SESSION_FORM, session_id)

    def is_session_token(self, session_id: str, token: str | None) -> bool:
        """Whether a request comes from a page of this server in this session."""
        return is_form_token(self._key, SESSION_FORM, session_id, token)

    def is_over(self, client: HttpClient, now_ms: int) -> bool:
        """Whether the login of a client has ended since its request."""
        if client.expires_ms is not None and now_ms >= client.expires_ms:
            return True
        if client.credentials is not None:
            record = self._security.users.find(client.rights.principal.name)
            return record is None or record.credentials != client.credentials
        if client.session_id is None:
            return False
        session = self._sessions.find(client.session_id, self._steady_s())
        return session is None or not self._has_credentials(session)

    def sweep(self) -> None:
        """Forget the sessions that are over."""
        self._sessions.sweep(self._steady_s())

    async def _client_of_header(self, authorization: str, host: str) -> HttpClient:
        users = self._security.users
        version = users.version
        found = await self._security.request_login.user(authorization, host, HTTP)
        record = users.find(found.principal.name) if found.expires_ms is None else None
        credentials: object = None if record is None else record.credentials
        if version != users.version:
            credentials = CHANGED  # perhaps those of this user, during the login: what lasts longer ends at once
        return HttpClient(ClientRights(self._security, found.principal, host), None, found.expires_ms, credentials)

    def _client(self, principal: Principal, host: str) -> HttpClient:
        return HttpClient(ClientRights(self._security, principal, host))

    def _broker(self, scope: Scope, purpose: str, body: bytes, host: str) -> HttpClient:
        token = _single(scope, PEER)
        if token is None:
            raise PeerTokenRejected("only brokers of the cluster may use this path")
        try:
            claims = self._security.peers.check(purpose, body, token)
        except PeerTokenRejected as error:
            self._security.audit.login_failed("", host, "PEER", HTTP, str(error))
            raise
        return self._client(claims.principal, claims.host)

    def _session_id(self, scope: Scope) -> str | None:
        return cookie_value(scope["headers"], self._session_cookie)

    def _session_user(self, session_id: str) -> str | None:
        """The user of a session whose user still has the same credentials."""
        session = self._sessions.use(session_id, self._steady_s())
        if session is None:
            return None
        if not self._has_credentials(session):
            self._sessions.end(session_id)
            return None
        return session.name

    def _has_credentials(self, session: BrowserSession) -> bool:
        """Whether the user of a session still has the credentials that opened it."""
        record = self._security.users.find(session.name)
        return record is not None and record.credentials == session.credentials

    def _attempt(self, scope: Scope) -> LoginAttempt | None:
        return parse_attempt(cookie_value(scope["headers"], self._attempt_cookie), self._steady_s())

    def _cookie(self, name: str, value: str, max_age_s: int) -> str:
        return cookie_header(name, value, max_age_s=max_age_s, is_secure=self.is_secure)


def _single(scope: Scope, name: bytes) -> str | None:
    """The value of a header; SaslAuthenticationFailed if a client sends more than one."""
    found = [value for key, value in scope["headers"] if key == name]
    if len(found) > 1:
        raise SaslAuthenticationFailed(f"the request has {len(found)} headers {name.decode()}; send one")
    return found[0].decode("latin-1") if found else None
