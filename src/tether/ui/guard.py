"""Access control: on loopback, anybody who uses a loopback name; elsewhere, those who have the token.

A page of another site that is open in the same browser must neither read anything here nor press a
button. It cannot: names that are not ours are refused (so a name that was bent to 127.0.0.1 does not
help it), answers carry no permission for other origins, and a button needs a word that only our own page
has been told.
"""

from __future__ import annotations

import secrets
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlencode, urlsplit

from starlette.responses import PlainTextResponse, RedirectResponse

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

COOKIE = "tether-token"
WORD = "x-tether-word"
LOOPBACK = frozenset({"127.0.0.1", "localhost", "[::1]", "::1"})
HEADERS = {
    b"content-security-policy": b"default-src 'none'; script-src 'self'; style-src 'self'; "
    b"img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    b"frame-ancestors 'none'",
    b"x-content-type-options": b"nosniff",
    b"referrer-policy": b"no-referrer",
    b"cross-origin-resource-policy": b"same-origin",
    b"cache-control": b"no-store",
}


class Guard:
    """Stands before the page.

    Args:
        app: The page.
        token: Asked of everybody; None: only loopback names are answered.
    """

    def __init__(self, app: ASGIApp, token: str | None) -> None:
        self._app, self._token = app, token
        self.word = secrets.token_urlsafe(24)
        """What a request that changes anything must carry in a header."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or refuse to."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def sealed(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", []), *HEADERS.items()]
            await send(message)

        answer = self._refusal(scope) or self._welcome(scope)
        await (answer or self._app)(scope, receive, sealed)

    def _refusal(self, scope: Scope) -> Any:
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        host = headers.get(b"host", "")
        if self._token is None and _name(host) not in LOOPBACK:
            return PlainTextResponse("This page answers on loopback names only.\n", 403)
        if self._token is not None and not self._has_token(scope, headers):
            return PlainTextResponse("The address of this page has a token in it: use that.\n", 401)
        if scope["method"] not in ("GET", "HEAD"):
            origin = headers.get(b"origin", f"http://{host}")
            same = urlsplit(origin).netloc == host
            word = headers.get(WORD.encode(), "")
            if not same or not secrets.compare_digest(word.encode(), self.word.encode()):
                return PlainTextResponse("Only the page itself may ask for this.\n", 403)
        return None

    def _has_token(self, scope: Scope, headers: dict[bytes, str]) -> bool:
        assert self._token is not None
        offered = [headers.get(b"authorization", "").removeprefix("Bearer ")]
        offered += parse_qs(scope["query_string"].decode("latin-1")).get("token", [])
        try:
            cookie = SimpleCookie(headers.get(b"cookie", ""))
        except CookieError:
            cookie = SimpleCookie()
        if COOKIE in cookie:
            offered.append(cookie[COOKIE].value)
        wanted = self._token.encode()
        return any(secrets.compare_digest(one.encode(), wanted) for one in offered)

    def _welcome(self, scope: Scope) -> Any:
        """A visitor with the token in the address gets it as a cookie, and an address without it."""
        query = parse_qs(scope["query_string"].decode("latin-1"))
        if self._token is None or "token" not in query or scope["method"] != "GET":
            return None
        del query["token"]
        rest = urlencode(query, doseq=True)
        answer = RedirectResponse(scope["path"] + (f"?{rest}" if rest else ""), 303)
        answer.set_cookie(COOKIE, self._token, httponly=True, samesite="strict")
        return answer


def _name(host: str) -> str:
    """The name in a Host header, without the port.

    Example:
        >>> _name("localhost:8080"), _name("[::1]:80"), _name("127.0.0.1")
        ('localhost', '[::1]', '127.0.0.1')
    """
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return host.partition(":")[0]
