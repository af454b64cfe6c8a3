"""Who may see a page: a browser on this machine that was given the token, on the studio's own pages.

What each check is for:

- the name in ``Host``: a page elsewhere whose name was made to mean this machine (DNS rebinding);
- ``Sec-Fetch-Site`` and ``Origin``: a page elsewhere, or of another port of this machine, that asks in the user's name;
- the token: every other program and user of this machine;
- the token of a form, another for each: what starts a process was sent by the form that the studio showed.
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
"""Where forms that start something go: by POST, and nothing else is."""
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; "
        "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",  # with no-referrer browsers leave a form's origin out
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
}
_OWN_PAGES = (None, "none", "same-origin")
"""What ``Sec-Fetch-Site`` may say: an old browser nothing, a typed address ``none``."""
_MOST_BYTES = 1 << 14


def _secret() -> str:
    return secrets.token_urlsafe(32)


@dataclass
class Tokens:
    """What lets a browser in.

    Args:
        shown: the token of the address that is printed; good as long as the studio runs.
        once: that of the address which a browser is started with, where other users could read it in the list of
            processes; good for one use.
        session: what a browser that was let in then holds as a cookie.
        cookie: its name, another for each studio: cookies do not know ports.
        forms: the key of the tokens of forms.
    """

    shown: str = field(default_factory=_secret)
    once: str = field(default_factory=_secret)
    session: str = field(default_factory=_secret)
    cookie: str = field(default_factory=lambda: f"understudy-{secrets.token_hex(4)}")
    forms: str = field(default_factory=_secret)

    def of_form(self, address: str) -> str:
        """The token of the form that is sent to an address."""
        return hmac.new(self.forms.encode(), address.encode(), "sha256").hexdigest()

    def let_in(self, token: str) -> bool:
        """Whether a token from an address is good; one for a single use is used up."""
        if _same(token, self.shown):
            return True
        if self.once and _same(token, self.once):
            self.once = ""
            return True
        return False

    def known(self, cookie: str | None) -> bool:
        """Whether a browser was let in."""
        return cookie is not None and _same(cookie, self.session)

    async def read_form(self, request: Request) -> dict[str, str]:
        """The fields of a form that the studio showed; HTTPException where it is another, or too long."""
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
    """In front of every page: refuses, lets in, and sets the headers of every answer."""

    def __init__(self, app: ASGIApp, *, tokens: Tokens) -> None:
        self._app = app
        self._tokens = tokens

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return  # nothing else is spoken here

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        answer = self._answer(Request(scope))
        await (self._app if answer is None else answer)(scope, receive, with_headers)

    def _answer(self, request: Request) -> Response | None:
        """What is said in place of a page; None where the page may be seen."""
        headers = request.headers
        host = headers.get("host", "")
        if host.partition(":")[0].lower() not in HOSTS:
            return _refusal("This name is not the studio's. Open the address that was printed.")
        starts, own = request.url.path.startswith(STARTS), f"http://{host}"
        if request.method != (allowed := "POST" if starts else "GET"):
            return PlainTextResponse(f"This page takes {allowed} alone.", 405, headers={"Allow": allowed})
        elsewhere = headers.get("origin") not in ((own,) if starts else (None, own))
        if elsewhere or headers.get("sec-fetch-site") not in _OWN_PAGES:
            return _refusal("Another page asked for this. Open the address that was printed, from the address bar.")
        token = request.query_params.get(TOKEN)
        if token is not None and not starts and self._tokens.let_in(token):
            answer = RedirectResponse("/", 303)
            answer.set_cookie(self._tokens.cookie, self._tokens.session, httponly=True, samesite="strict")
            return answer
        if not self._tokens.known(request.cookies.get(self._tokens.cookie)):
            return _refusal("The token is missing, or is that of another studio. Open the address that was printed.")
        return None


def _refusal(why: str) -> Response:
    return PlainTextResponse(f"Refused. {why}\n", 403)
