"""The login page: a form without scripts."""

from html import escape

from tidemill.servers.http.front_page import TOKEN_FIELD, page_head

NAME_FIELD, PASSWORD_FIELD = "name", "password"


def login_page(form_token: str, *, name: str = "", problem: str = "") -> str:
    """Return the document. `name` and `problem` are of a login that failed."""
    reason = f'<p class="bad" role="alert">{escape(problem)}</p>' if problem else ""
    return f"""{page_head("Log in to Tidemill")}
<h1><b>Tidemill</b></h1>
<form class="sheet login" method="post" action="/login">{reason}
<input type="hidden" name="{TOKEN_FIELD}" value="{escape(form_token)}">
<label>User <input name="{NAME_FIELD}" value="{escape(name)}" autocomplete="username" required autofocus></label>
<label>Password <input name="{PASSWORD_FIELD}" type="password" autocomplete="current-password" required></label>
<button>Log in</button>
</form></main></body></html>
"""
