"""The ASGI application: our pages, and the gate before them.

Pages are made in threads; drawings and checks in processes, which forget what a visitor asked for
who has gone.
"""

import asyncio
import hashlib
import re
from collections.abc import AsyncIterator, Callable, Iterable
from concurrent.futures import Future
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, get_args
from urllib.parse import parse_qsl

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from vademecum.atlas.drawings import AHEAD, Drawings
from vademecum.atlas.gate import Gate
from vademecum.atlas.links import Links
from vademecum.atlas.network import Dossier
from vademecum.atlas.pages import Pages
from vademecum.atlas.sources import our_modules
from vademecum.atlas.training_run import look_at_run
from vademecum.atlas.verdicts import Verdicts
from vademecum.claims import Claim, Report
from vademecum.claims.workers import Closed
from vademecum.errors import UsageError
from vademecum.figures import has_curves
from vademecum.pictures import Picture
from vademecum.sheet import Form, PrinterMissing, print_pdf
from vademecum.typeset import FONT

__all__ = ["STATIC", "application"]

STATIC = Path(__file__).parent / "static"
_TYPES = {"html": "text/html", "pdf": "application/pdf"}
_FORM = "application/x-www-form-urlencoded"
_SECONDS_TO_NEXT_LOOK = "5"


def application(
    verdicts: Verdicts,
    drawings: Drawings,
    *,
    token: str,
    hosts: Iterable[str],
    cookie: str = "vademecum",
    look: Callable[[], Dossier | None] = lambda: None,
    run: Path | None = None,
) -> Gate:
    """The atlas as one ASGI application.

    Args:
        verdicts: The claims and what is known about them; closed when the application shuts down.
        drawings: Where drawings come from; closed likewise.
        token: The secret that the first address carries.
        hosts: The names and ports by which the server may be called.
        cookie: The name of the cookie that keeps the secret.
        look: Looks at the user's network, in its own time.
        run: The folder of a training run to follow.
    """
    site = _Site(verdicts, drawings, look, run)

    @asynccontextmanager
    async def closing(_: Starlette) -> AsyncIterator[None]:
        yield
        await run_in_threadpool(verdicts.close)
        await run_in_threadpool(drawings.close)

    handlers: Any = {HTTPException: site.refuse, UsageError: site.wrong, ClientDisconnect: _gone}
    handlers |= {TimeoutError: site.failed, ChildProcessError: site.failed}
    handlers |= {MemoryError: site.failed, Closed: site.closed}
    inner = Starlette(routes=site.routes(), lifespan=closing, exception_handlers=handlers)
    inner.router.redirect_slashes = False
    return Gate(inner, token=token, hosts=hosts, cookie=cookie)


class _Site:
    def __init__(
        self, verdicts: Verdicts, drawings: Drawings, look: Callable[[], Dossier | None],
        run: Path | None = None,
    ):  # fmt: skip
        self.verdicts, self.drawings, self.look, self.folder = verdicts, drawings, look, run
        self.printing = asyncio.Lock()
        self.pages = Pages(verdicts, Links(), drawings, follows_run=run is not None)
        self.pictures = {picture.id: picture for picture in self.pages.pictures}

    def routes(self) -> list[Route | Mount]:
        pages = self.pages
        return [
            _page("/", lambda _: pages.home()),
            _page("/errata", lambda _: pages.errata()),
            _page("/course", lambda _: pages.course()),
            Route("/sheet-{form}.{kind}", self.sheet),
            _page("/network", lambda _: pages.network(self.look())),
            Route("/run", self.run),
            _page("/rooms/{room}", self.room),
            _page("/rooms/{room}/{name}", lambda request: pages.statement(self._claim(request))),
            Route("/pictures/{room}/{name}.svg", self.drawing),
            _page("/pictures/{room}/{name}", self.picture),
            _page("/source/{module}", self.source),
            Route("/figures/{room}.{name}.svg", self.figure),
            Route("/search.json", self.search),
            Route("/rooms/{room}/{name}/run", self.trial, methods=["POST"]),
            Route("/rooms/{room}/{name}/break/{index}", self.breaking, methods=["POST"]),
            Route("/check", self.check, methods=["GET", "POST", "DELETE"]),
            Mount("/static", StaticFiles(directory=STATIC)),
            Mount("/maths", StaticFiles(directory=FONT)),
        ]

    def room(self, request: Request) -> str:
        room = request.path_params["room"]
        if room not in self.pages.rooms:
            raise HTTPException(404, f"There is no room {room[:80]!r}.")
        return self.pages.room(room)

    def picture(self, request: Request) -> str:
        picture = self._picture(request)
        try:
            knobs = picture.read(request.query_params)
        except UsageError as error:
            raise HTTPException(400, f"{error}.") from error
        return self.pages.picture(picture, knobs)

    def source(self, request: Request) -> str:
        module = request.path_params["module"]
        if module not in our_modules():
            raise HTTPException(404, f"There is no module {module[:80]!r}.")
        return self.pages.source(module)

    async def sheet(self, request: Request) -> Response:
        form, kind = request.path_params["form"], request.path_params["kind"]
        if form not in get_args(Form) or kind not in ("html", "pdf"):
            raise HTTPException(404)
        async with self.printing:  # one after the other: each takes a browser
            made: str | bytes = await run_in_threadpool(self.pages.sheet, form)
            if kind == "pdf":
                try:
                    made = await run_in_threadpool(print_pdf, made)
                except PrinterMissing as error:
                    raise HTTPException(503, f"{error}: take the HTML and print it.") from error
        name = {"Content-Disposition": f'attachment; filename="sheet-{form}.{kind}"'}
        return Response(made, media_type=_TYPES[kind], headers=name)

    async def run(self, _: Request) -> Response:
        if self.folder is None:
            raise HTTPException(404, "No run is followed: vade atlas --run FOLDER does.")
        view = await run_in_threadpool(look_at_run, self.folder)
        again = {} if view.ended else {"Refresh": _SECONDS_TO_NEXT_LOOK}
        return HTMLResponse(await run_in_threadpool(self.pages.run, view), headers=again)

    async def search(self, _: Request) -> Response:
        return JSONResponse(await run_in_threadpool(self.pages.search))

    async def drawing(self, request: Request) -> Response:
        picture = self._picture(request)
        rank = AHEAD * (request.headers.get("purpose") == "prefetch")
        asked = self.drawings.ask(picture, picture.read(request.query_params), rank)
        return _svg(request, await _awaited(request, asked, asked.cancel))

    async def figure(self, request: Request) -> Response:
        report = self.verdicts.known(self._claim(request).id).report
        if report is None or not has_curves(report):
            raise HTTPException(404, "There is nothing to draw of this claim, or it never ran.")
        asked = self.drawings.evidence(report)
        return _svg(request, await _awaited(request, asked, asked.cancel))

    async def check(self, request: Request) -> Response:
        if request.method == "POST":
            await run_in_threadpool(self.verdicts.start)
        elif request.method == "DELETE":
            await run_in_threadpool(self.verdicts.stop)
        return JSONResponse(self.verdicts.progress())

    async def trial(self, request: Request) -> Response:
        claim = self._claim(request)
        seed, knobs = await _form(request, claim)
        call = self.verdicts.trial(claim, seed, knobs)
        try:
            report, figure = await _awaited(request, call, lambda: self.verdicts.abandon(call))
        except (TimeoutError, ChildProcessError) as error:
            overdue = isinstance(error, TimeoutError)
            report, figure = Report(claim.id, seed, error=str(error), overdue=overdue), b""
        return HTMLResponse(await run_in_threadpool(self.pages.outcome, claim, report, figure))

    async def breaking(self, request: Request) -> Response:
        claim, index = self._claim(request), request.path_params["index"]
        if not re.fullmatch("[0-9]{1,3}", index) or int(index) >= len(claim.foils):
            raise HTTPException(404, f"There is no wrong variant {index[:80]!r} of this claim.")
        seed, _ = await _form(request, claim)
        call = self.verdicts.beside_foil(claim, int(index), seed)
        reports = await _awaited(request, call, lambda: self.verdicts.abandon(call))
        return HTMLResponse(await run_in_threadpool(self.pages.broken, claim, int(index), *reports))

    async def refuse(self, request: Request, error: HTTPException) -> Response:
        words = error.detail if error.status_code != 404 or error.detail != "Not Found" else ""
        words = words or f"There is no page {request.url.path[:200]}."
        if request.method != "GET":  # a script asks, not a reader
            return PlainTextResponse(words, error.status_code, error.headers)
        return HTMLResponse(self.pages.missing(words), error.status_code, error.headers)

    async def wrong(self, _: Request, error: Exception) -> Response:
        return PlainTextResponse(str(error), 400)

    async def failed(self, _: Request, error: Exception) -> Response:
        words = str(error) or "there is not so much memory"
        return PlainTextResponse(f"This took too much: {words}.", 503)

    async def closed(self, _: Request, __: Exception) -> Response:
        return PlainTextResponse("The atlas is closing.", 503)

    def _claim(self, request: Request) -> Claim:
        claim = self.verdicts.claims.get("{room}.{name}".format_map(request.path_params))
        if claim is None:
            raise HTTPException(404, "There is no such claim.")
        return claim

    def _picture(self, request: Request) -> Picture:
        picture = self.pictures.get("{room}.{name}".format_map(request.path_params))
        if picture is None:
            raise HTTPException(404, "There is no such picture.")
        return picture


def _page(path: str, make: Callable[[Request], str]) -> Route:
    async def answer(request: Request) -> Response:
        return HTMLResponse(await run_in_threadpool(make, request))

    return Route(path, answer)


async def _gone(_: Request, __: Exception) -> Response:
    return Response(status_code=400)


def _svg(request: Request, drawing: bytes) -> Response:
    tag = f'"{hashlib.sha256(drawing).hexdigest()[:16]}"'
    headers = {"Cache-Control": "private, max-age=300", "ETag": tag}
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    return Response(drawing, media_type="image/svg+xml", headers=headers)


async def _form(request: Request, claim: Claim) -> tuple[int, dict[str, str]]:
    """The seed and the knobs as they were typed."""
    body = await request.body()
    kind = request.headers.get("content-type", _FORM).partition(";")[0].strip().lower()
    if body and kind != _FORM:
        raise HTTPException(415, f"A form must be {_FORM}.")
    form = dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True))
    seed = form.pop("seed", "0")
    if not re.fullmatch("[0-9]{1,9}", seed):
        raise UsageError(f"seed must be a whole number below a milliard, got {seed[:80]!r}")
    known = {f"knob-{name}": name for name in claim.knobs}
    for name in form:
        if name not in known:
            raise UsageError(f"there is no field {name[:80]!r}; there are seed, {', '.join(known)}")
    return int(seed), {known[name]: text for name, text in form.items()}


async def _awaited(request: Request, answer: Future, forget: Callable[[], Any]) -> Any:
    """The answer; if the visitor goes away before, it is forgotten."""

    async def departure() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    leaving, waiting = asyncio.ensure_future(departure()), asyncio.wrap_future(answer)
    try:
        await asyncio.wait({leaving, waiting}, return_when=asyncio.FIRST_COMPLETED)
        if waiting.done():
            return waiting.result()
        forget()
        raise ClientDisconnect
    finally:
        leaving.cancel()
        waiting.cancel()
