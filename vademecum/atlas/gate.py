"""Who may come in: one layer of ASGI before every route, over http and websockets alike.

A request passes if it names this server as its Host, carries no foreign Origin (and one of ours
where browsers always send it: websockets and anything but GET), and shows the secret: as `?token=`
in the first address, which is answered by a cookie, and as that cookie from then on. Of the
notebooks' own routes only those that a running picture needs are open; their editor, terminal,
files, packages and language servers are not. Every answer gets a content security policy that keeps
the browser on this server.
"""

import hmac
import re
from collections.abc import Iterable
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qsl, urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["Gate", "is_open"]

_LIVE = re.compile(
    r"GET /live/\w+/(|health|public-files-sw\.js|assets/[\w.-]+|@file/[\w.-]+)"
    r"|GET /live/\w+/(favicon\.ico|manifest\.json|[\w-]+\.png)"
    r"|(GET|WEBSOCKET) /live/\w+/ws"
    r"|POST /live/\w+/api/kernel/set_ui_element_value"
)
_OURS = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:;"
    " connect-src 'self'; frame-src 'self'; form-action 'self'; base-uri 'none';"
    " frame-ancestors 'none'"
)
_NOTEBOOKS = (  # whose front end makes scripts and styles as it goes
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval' blob:;"
    " style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; font-src 'self' data:;"
    " connect-src 'self' data: blob:; worker-src 'self' blob:; object-src 'none';"
    " base-uri 'self'; frame-ancestors 'self'"
)


def is_open(method: str, path: str) -> bool:
    """Whether a route may be used at all, by those who are let in.

    Example:
        >>> is_open("GET", "/live/linear/"), is_open("WEBSOCKET", "/live/linear/terminal/ws")
        (True, False)
    """
    return not path.startswith("/live") or bool(_LIVE.fullmatch(f"{method} {path}"))


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
        if scope["type"] not in ("http", "websocket"):
            return await self.app(scope, receive, send)
        answer = self._answer(scope)
        if answer is None:
            return await self.app(scope, receive, _with_policy(send, scope["path"]))
        return await _refuse(answer, scope, receive, send)

    def _answer(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        method = scope.get("method", "WEBSOCKET").replace("HEAD", "GET")
        host, origin = headers.get("host", ""), headers.get("origin")
        if host.lower() not in self.hosts:
            return PlainTextResponse("This server is not called that.\n", 403)
        if origin is not None and origin.lower() not in self.origins:
            return PlainTextResponse("Another site may not ask this server.\n", 403)
        if method == "GET" and b"token=" in scope["query_string"]:
            return self._welcome(scope)
        if not self._knows(_cookies(headers).get(self.cookie, "")):
            return _stranger()
        if origin is None and method != "GET":
            return PlainTextResponse("A browser would have said where it comes from.\n", 403)
        if not is_open(method, scope["path"]):
            return PlainTextResponse("This is closed.\n", 403)
        return None

    def _welcome(self, scope: Scope) -> Response:
        query = dict(parse_qsl(scope["query_string"].decode("latin-1")))
        if not self._knows(query.pop("token", "")):
            return _stranger()
        path = "/" + scope["path"].lstrip("/")  # never another host, as in //host
        answer = RedirectResponse(path + (f"?{urlencode(query)}" if query else ""), 303)
        answer.set_cookie(self.cookie, self.token, httponly=True, samesite="strict")
        return answer

    def _knows(self, secret: str) -> bool:
        return hmac.compare_digest(secret.encode(), self.token.encode())


def _stranger() -> Response:
    return PlainTextResponse("Open the address that `vade atlas` printed.\n", 401)


def _cookies(headers: Headers) -> dict[str, str]:
    try:
        return {name: m.value for name, m in SimpleCookie(headers.get("cookie", "")).items()}
    except CookieError:
        return {}


async def _refuse(answer: Response, scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "http":
        await answer(scope, receive, _with_policy(send, scope["path"]))
    elif "websocket.http.response" in scope.get("extensions", {}):
        await answer(scope, receive, send)
    else:
        await send({"type": "websocket.close", "code": 1008})


def _with_policy(send: Send, path: str) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            policy = _NOTEBOOKS if path.startswith("/live/") else _OURS
            headers["Content-Security-Policy"] = policy
            headers["Referrer-Policy"] = "no-referrer"
            headers["X-Content-Type-Options"] = "nosniff"
            headers["Cross-Origin-Resource-Policy"] = "same-origin"
        await send(message)

    return sending
