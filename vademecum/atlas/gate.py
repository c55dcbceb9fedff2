"""Who may come in, and with how much: one layer of ASGI before every route.

A request passes if it names this server as its Host, carries no foreign Origin (and one of ours
where browsers always send it: with anything but GET), and shows the secret: as `?token=` in the
first address, which is answered by a cookie, and as that cookie from then on. Its body says how
long it is, and is short. Every answer gets a content security policy that keeps the browser on this
server.
"""

import hmac
from collections.abc import Iterable
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qsl, urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["Gate"]

LONGEST = 65536
"""The bytes of a body."""
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:;"
        " font-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none';"
        " frame-ancestors 'none'"
    ),
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class Gate:
    """The layer before an application.

    Args:
        app: What is behind it.
        token: The secret.
        hosts: The names and ports by which this server may be called, such as "127.0.0.1:2718".
        cookie: The cookie's name; browsers share cookies between ports, so each port needs its own.
    """

    def __init__(self, app: ASGIApp, *, token: str, hosts: Iterable[str], cookie: str):
        self.app, self.token, self.cookie = app, token, cookie
        self.hosts = frozenset(host.lower() for host in hosts)
        self.origins = frozenset(f"http://{host}" for host in self.hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or answer it here."""
        if scope["type"] == "websocket":  # there are none
            return await send({"type": "websocket.close", "code": 1008})
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        answer = self._answer(scope) or self.app
        return await answer(scope, receive, _with_policy(send))

    def _answer(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        reading = scope["method"] in ("GET", "HEAD")
        host, origin = headers.get("host", ""), headers.get("origin")
        if host.lower() not in self.hosts:
            return _refusal("This server is not called that.", 403)
        if origin is not None and origin.lower() not in self.origins:
            return _refusal("Another site may not ask this server.", 403)
        query = dict(parse_qsl(scope["query_string"].decode("latin-1")))
        if reading and "token" in query:
            return self._welcome(scope["path"], query)
        if not self._knows(_cookies(headers).get(self.cookie, "")):
            return _stranger()
        if origin is None and not reading:
            return _refusal("A browser would have said where it comes from.", 403)
        return _too_long(headers)

    def _welcome(self, path: str, query: dict[str, str]) -> Response:
        if not self._knows(query.pop("token")):
            return _stranger()
        path = "/" + path.lstrip("/\\")  # never another host, as in //host
        answer = RedirectResponse(path + (f"?{urlencode(query)}" if query else ""), 303)
        # lax, so that a link to a state works from elsewhere; what changes anything needs an Origin
        answer.set_cookie(self.cookie, self.token, httponly=True, samesite="lax")
        return answer

    def _knows(self, secret: str) -> bool:
        return hmac.compare_digest(secret.encode(), self.token.encode())


def _refusal(words: str, status: int) -> Response:
    return PlainTextResponse(words + "\n", status, {"Connection": "close"})


def _stranger() -> Response:
    return _refusal("Open the address that `vade atlas` printed.", 401)


def _too_long(headers: Headers) -> Response | None:
    length = headers.get("content-length", "0")
    if "transfer-encoding" in headers or not (length.isascii() and length.isdigit()):
        return _refusal("A body must say how long it is.", 411)
    if len(length) > 9 or int(length) > LONGEST:
        return _refusal(f"A body may have {LONGEST} bytes.", 413)
    return None


def _cookies(headers: Headers) -> dict[str, str]:
    try:
        return {name: m.value for name, m in SimpleCookie(headers.get("cookie", "")).items()}
    except CookieError:
        return {}


def _with_policy(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            MutableHeaders(scope=message).update(_HEADERS)
        await send(message)

    return sending
