"""The ASGI application: our pages, and the gate before them."""

import re
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from vademecum.atlas.gate import Gate
from vademecum.atlas.network import Dossier
from vademecum.atlas.pages import Pages
from vademecum.atlas.sources import our_modules
from vademecum.atlas.verdicts import Verdicts
from vademecum.canvas import styled, svg
from vademecum.claims import Claim, Report
from vademecum.errors import UsageError
from vademecum.figures import draw, has_curves

__all__ = ["STATIC", "application"]

STATIC = Path(__file__).parent / "static"


def application(
    verdicts: Verdicts,
    *,
    token: str,
    hosts: Iterable[str],
    cookie: str = "vademecum",
    look: Callable[[], Dossier | None] = lambda: None,
) -> Gate:
    """The atlas as one ASGI application.

    Args:
        verdicts: The claims and what is known about them; closed when the application shuts down.
        token: The secret that the first address carries.
        hosts: The names and ports by which the server may be called.
        cookie: The name of the cookie that keeps the secret.
        look: Looks at the user's network, in its own time.
    """
    site = _Site(verdicts, look)

    @asynccontextmanager
    async def closing(_: Starlette) -> AsyncIterator[None]:
        yield
        await run_in_threadpool(verdicts.close)

    routes = [*site.routes(), Mount("/static", StaticFiles(directory=STATIC))]
    inner = Starlette(
        routes=routes,
        lifespan=closing,
        exception_handlers={HTTPException: site.missing},
    )
    return Gate(inner, token=token, hosts=hosts, cookie=cookie)


class _Site:
    """Our own pages; what takes time is done in threads, so that the others are served."""

    def __init__(self, verdicts: Verdicts, look: Callable[[], Dossier | None]):
        self.verdicts, self.look, self.pages = verdicts, look, Pages(verdicts)
        self.drawn: dict[str, tuple[Report, bytes]] = {}

    def routes(self) -> list[Route]:
        return [
            Route("/", self.home),
            Route("/rooms/{room}", self.room),
            Route("/rooms/{room}/{name}/run", self.trial, methods=["POST"]),
            Route("/errata", self.errata),
            Route("/network", self.network),
            Route("/source/{module}", self.source),
            Route("/figures/{name}.svg", self.figure),
            Route("/check", self.check, methods=["GET", "POST", "DELETE"]),
            Route("/{name}", self.nowhere),
        ]

    async def home(self, _: Request) -> Response:
        return HTMLResponse(await run_in_threadpool(self.pages.home))

    async def errata(self, _: Request) -> Response:
        return HTMLResponse(await run_in_threadpool(self.pages.errata))

    async def room(self, request: Request) -> Response:
        room = request.path_params["room"]
        if room not in self.pages.rooms:
            raise HTTPException(404, f"There is no room {room!r}.")
        return HTMLResponse(await run_in_threadpool(self.pages.room, room))

    async def network(self, _: Request) -> Response:
        dossier = await run_in_threadpool(self.look)
        return HTMLResponse(self.pages.network(dossier))

    async def source(self, request: Request) -> Response:
        module = request.path_params["module"]
        if module not in our_modules():
            raise HTTPException(404, f"There is no module {module!r}.")
        return HTMLResponse(await run_in_threadpool(self.pages.source, module))

    async def figure(self, request: Request) -> Response:
        reports = self.verdicts.of(request.path_params["name"])
        if not reports:
            raise HTTPException(404, "This claim has not run yet.")
        drawn = await run_in_threadpool(self._figure, reports[0])
        return Response(drawn, media_type="image/svg+xml", headers={"Cache-Control": "no-cache"})

    async def nowhere(self, request: Request) -> Response:
        raise HTTPException(404, f"There is no page {request.url.path}.")

    async def missing(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)  # which it is registered for
        if request.method != "GET":  # a script asks, not a reader
            return PlainTextResponse(error.detail, error.status_code, error.headers)
        return HTMLResponse(self.pages.missing(error.detail), error.status_code, error.headers)

    async def check(self, request: Request) -> Response:
        if request.method == "POST":
            self.verdicts.start()
        elif request.method == "DELETE":
            self.verdicts.stop()
        return JSONResponse(self.verdicts.progress())

    async def trial(self, request: Request) -> Response:
        claim = self.verdicts.claims.get("{room}.{name}".format_map(request.path_params))
        if claim is None:
            raise HTTPException(404, "There is no such claim.")
        form = {k: v for k, v in (await request.form()).items() if isinstance(v, str)}
        seed = form.pop("seed", "0")
        if not re.fullmatch(r"\d{1,9}", seed):
            return PlainTextResponse(f"seed must be a whole number, got {seed!r}", 400)
        knobs = {k.removeprefix("knob-"): v for k, v in form.items() if k.startswith("knob-")}
        try:
            return HTMLResponse(await run_in_threadpool(self._try, claim, int(seed), knobs))
        except UsageError as error:
            return PlainTextResponse(str(error), 400)

    def _figure(self, report: Report) -> bytes:
        if self.drawn.get(report.id, (None,))[0] is not report:
            self.drawn[report.id] = report, svg(styled(lambda: draw(report)))
        return self.drawn[report.id][1]

    def _try(self, claim: Claim, seed: int, knobs: dict[str, str]) -> str:
        report = self.verdicts.trial(claim, seed, knobs)
        picture = svg(styled(lambda: draw(report))).decode() if has_curves(report) else ""
        return self.pages.outcome(claim, report, picture)
