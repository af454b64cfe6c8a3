"""Access control: only a browser on this machine that was given the token may see pages, and only from the studio.

The attacks that each check prevents:

- the name in ``Host``: a foreign page whose name was made to resolve to this machine (DNS rebinding);
- ``Sec-Fetch-Site`` and ``Origin``: a foreign page, or one of another port here, that asks in the user's name;
- the token: every other program and user of this machine;
- the token of a form, different for each form: requests to start a process that no form of the studio sent.
"""

from __future__ import annotations

import hmac
import secrets
from dataclasses import dataclass, field
from urllib.parse import parse_qsl

from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HOSTS = ("127.0.0.1", "localhost")
TOKEN = "token"
STARTS = "/start/"
"""The address of forms that start something, and the only one that takes POST."""
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; "
        "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",  # with no-referrer, browsers omit a form's origin
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
}
_OWN_PAGES = (None, "none", "same-origin")
"""Allowed values of ``Sec-Fetch-Site``: old browsers send nothing, and a typed address ``none``."""
_MOST_BYTES = 1 << 14


def _secret() -> str:
    return secrets.token_urlsafe(32)


@dataclass
class Tokens:
    """The tokens that admit a browser.

    Args:
        shown: in the printed address; valid as long as the studio runs.
        once: in the address that starts a browser, which other users could read in the list of processes; valid for
            one use.
        session: the cookie of an admitted browser.
        cookie: the cookie's name, different for each studio because cookies are shared between ports.
        forms: the key of the tokens of forms.
    """

    shown: str = field(default_factory=_secret)
    once: str = field(default_factory=_secret)
    session: str = field(default_factory=_secret)
    cookie: str = field(default_factory=lambda: f"understudy-{secrets.token_hex(4)}")
    forms: str = field(default_factory=_secret)

    def of_form(self, address: str) -> str:
        """Return the token of the form that is sent to an address."""
        return hmac.new(self.forms.encode(), address.encode(), "sha256").hexdigest()

    def let_in(self, token: str) -> bool:
        """Return whether a token from an address is valid; a token for a single use becomes invalid."""
        if _same(token, self.shown):
            return True
        if self.once and _same(token, self.once):
            self.once = ""
            return True
        return False

    def known(self, cookie: str | None) -> bool:
        """Return whether a browser was admitted."""
        return cookie is not None and _same(cookie, self.session)

    async def read_form(self, request: Request) -> dict[str, str]:
        """Return the fields of a form that the studio showed. Raises HTTPException for any other or too long form."""
        body = b""
        async for part in request.stream():
            body += part
            if len(body) > _MOST_BYTES:
                raise HTTPException(413)
        fields = dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True))
        if not _same(fields.pop(TOKEN, ""), self.of_form(request.url.path)):
            raise HTTPException(403)
        return fields


def _same(one: str, other: str) -> bool:
    return secrets.compare_digest(one.encode("utf-8", "replace"), other.encode())


class Guard:
    """Middleware in front of every page: it refuses or admits requests and sets the headers of all answers."""

    def __init__(self, app: ASGIApp, *, tokens: Tokens) -> None:
        self._app = app
        self._tokens = tokens

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return  # no other protocol is supported

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        answer = self._answer(Request(scope))
        await (self._app if answer is None else answer)(scope, receive, with_headers)

    def _answer(self, request: Request) -> Response | None:
        """Return the answer instead of a page; None if the page may be seen."""
        headers = request.headers
        host = headers.get("host", "")
        if host.partition(":")[0].lower() not in HOSTS:
            return _refusal("The studio does not have this name. Open the printed address.")
        starts, own = request.url.path.startswith(STARTS), f"http://{host}"
        if request.method != (allowed := "POST" if starts else "GET"):
            return PlainTextResponse(f"This page only accepts {allowed}.", 405, headers={"Allow": allowed})
        elsewhere = headers.get("origin") not in ((own,) if starts else (None, own))
        if elsewhere or headers.get("sec-fetch-site") not in _OWN_PAGES:
            return _refusal("The request came from another page. Enter the printed address in the address bar.")
        token = request.query_params.get(TOKEN)
        if token is not None and not starts and self._tokens.let_in(token):
            answer = RedirectResponse("/", 303)
            answer.set_cookie(self._tokens.cookie, self._tokens.session, httponly=True, samesite="strict")
            return answer
        if not self._tokens.known(request.cookies.get(self._tokens.cookie)):
            return _refusal("The token is missing or belongs to another studio. Open the printed address.")
        return None


def _refusal(why: str) -> Response:
    return PlainTextResponse(f"Refused. {why}\n", 403)
