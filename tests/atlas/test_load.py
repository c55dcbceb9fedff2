"""Twenty visitors at once, each with a live notebook, moving a slider again and again."""

import asyncio
import os
import random
import re
import signal
import time

import httpx2
import psutil
import pytest
import websockets

from tests.atlas.conftest import Served, serve
from vademecum.atlas.application import SESSION_SECONDS

VISITORS = 20
SECONDS = float(os.environ.get("VADEMECUM_LOAD_SECONDS", "5"))
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser")]


class Visit:
    """One visitor: a websocket for what the notebook shows, and requests."""

    def __init__(self, atlas: Served, number: int):
        self.base, token = atlas.address.split("/?token=")
        self.cookies = {f"vademecum-{self.base.rpartition(':')[2]}": token}
        self.session = f"s_{number:06d}"
        self.sliders: set[str] = set()
        self.pictures = 0

    async def stay(self, seconds: float) -> int:
        """Open the pictures, move a slider every two seconds, read other pages; pictures seen."""
        options = {"cookies": self.cookies, "headers": {"Origin": self.base}, "timeout": 60}
        transport = httpx2.AsyncHTTPTransport(retries=2)
        async with httpx2.AsyncClient(transport=transport, **options) as client:
            page = await client.get(f"{self.base}/live/connectionism/")
            headers = {
                "Marimo-Session-Id": self.session,
                "Marimo-Server-Token": re.findall(r'data-token="([^"]+)"', page.text)[0],
            }
            address = self.base.replace("http", "ws") + "/live/connectionism/ws"
            cookie = "; ".join(f"{k}={v}" for k, v in self.cookies.items())
            async with websockets.connect(
                f"{address}?session_id={self.session}",
                additional_headers={"Cookie": cookie},
                origin=websockets.Origin(self.base),
                max_size=None,
                ping_timeout=120,
            ) as socket:
                reading = asyncio.create_task(self._read(socket))
                end = time.monotonic() + seconds
                try:
                    while time.monotonic() < end or not self.pictures:
                        await asyncio.sleep(1 + random.random())
                        await self._move(client, headers)
                        if reading.done():
                            reading.result()
                finally:
                    reading.cancel()
                    await asyncio.gather(reading, return_exceptions=True)
        return self.pictures

    async def _read(self, socket) -> None:
        async for message in socket:
            text = message if isinstance(message, str) else message.decode()
            assert "marimo-error" not in text, text
            self.sliders |= set(re.findall(r"object-id='([^']+)'", text))
            self.pictures += "data:image/svg" in text

    async def _move(self, client, headers) -> None:
        path = "live/connectionism/api/kernel/set_ui_element_value"
        if self.sliders:
            body = {"objectIds": [min(self.sliders)], "values": [random.choice([0.1, 0.2, 0.3])]}
            answer = await client.post(f"{self.base}/{path}", json=body, headers=headers)
            assert answer.status_code == 200, answer.text
        for page in random.sample(["", "rooms/connectionism", "errata"], 1):
            assert (await client.get(f"{self.base}/{page}")).status_code == 200


async def crowd(atlas: Served, seconds: float, first: int) -> list[int]:
    visits = (Visit(atlas, first + k).stay(seconds) for k in range(VISITORS))
    return await asyncio.gather(*visits)


def settled_megabytes(atlas: Served) -> float:
    """The server's memory once the sessions have gone and the heap has been tidied."""
    time.sleep(SESSION_SECONDS + 20)
    return psutil.Process(atlas.process.pid).memory_info().rss / 1e6


def test_twenty_visitors_leave_no_trace(tmp_path):
    random.seed(0)
    for atlas in serve():
        assert min(asyncio.run(crowd(atlas, 2, 0))) > 0
        before = settled_megabytes(atlas)
        assert min(asyncio.run(crowd(atlas, SECONDS, 100))) > 0
        after = settled_megabytes(atlas)
        assert after < 1.1 * before, (before, after)
        atlas.process.terminate()
        atlas.process.wait(20)
        assert "Traceback" not in last_words(atlas)


def last_words(atlas: Served) -> str:
    assert atlas.process.stdout is not None
    return atlas.process.stdout.read()


def test_ctrl_c_does_not_wait_for_those_who_look_at_a_picture(tmp_path):
    async def interrupted(atlas: Served) -> int:
        visit = Visit(atlas, 0)
        staying = asyncio.create_task(visit.stay(60))
        while not visit.pictures:
            await asyncio.sleep(0.1)
            if staying.done():
                staying.result()  # which raises: nobody leaves before the signal
        atlas.process.send_signal(signal.SIGINT)
        code = await asyncio.to_thread(atlas.process.wait, 120)
        staying.cancel()
        await asyncio.gather(staying, return_exceptions=True)
        return code

    for atlas in serve():
        assert asyncio.run(interrupted(atlas)) == 0, last_words(atlas)


def test_ctrl_c_does_not_wait_for_those_who_have_just_left(tmp_path):
    for atlas in serve():
        assert asyncio.run(Visit(atlas, 0).stay(0)) > 0
        atlas.process.send_signal(signal.SIGINT)
        assert atlas.process.wait(120) == 0, last_words(atlas)
