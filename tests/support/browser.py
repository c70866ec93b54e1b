"""A browser without scripts: it keeps cookies, follows redirections, and sends forms as a person does."""

import html
import re
import ssl

import httpx

WAIT_S = 30.0
_HIDDEN = re.compile(r'<input type="hidden" name="(\w+)" value="([^"]*)">')


class FormBrowser(httpx.Client):
    """A browser at one server. Its requests look like those of a page of that server."""

    def __init__(self, url: str, context: ssl.SSLContext | bool = True) -> None:
        super().__init__(base_url=url, verify=context, timeout=WAIT_S, follow_redirects=True)

    def open(self, path: str) -> httpx.Response:
        """Open a page from the address line."""
        return self.get(path, headers={"accept": "text/html", "sec-fetch-mode": "navigate", "sec-fetch-site": "none"})

    def submit(self, path: str, fields: dict[str, str], **headers: str) -> httpx.Response:
        """Send a form of a page of this server."""
        own = {"origin": str(self.base_url).rstrip("/"), "sec-fetch-mode": "navigate", "sec-fetch-site": "same-origin"}
        return self.post(path, data=fields, headers={**own, **headers})

    def log_in(self, name: str, password: str) -> httpx.Response:
        """Fill in the login page."""
        hidden = hidden_fields(self.open("/login"))
        return self.submit("/login", {**hidden, "name": name, "password": password})


def hidden_fields(page: httpx.Response) -> dict[str, str]:
    """The hidden fields of the forms of a page."""
    return {name: html.unescape(value) for name, value in _HIDDEN.findall(page.text)}
