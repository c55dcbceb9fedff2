"""Every kind of page on phones, dark and light, before axe; and as files."""

import re
import subprocess
import sys

import pytest

from tests.atlas.browser.conftest import look_for, visit
from tests.conftest import BROWSER

pytestmark = BROWSER


KINDS = ["", "rooms/connectionism", "rooms/linear/ridge", "errata", "course", "network", "nowhere",
         "pictures/approximation/barron_rate", "source/vademecum.atlas.links"]  # fmt: skip
LOOKS = [("light", 1280), ("dark", 1280), ("light", 360), ("dark", 360)]


@pytest.mark.parametrize("path", KINDS)
def test_phones_dark_pages_and_axe(chromium, atlas, path):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    for scheme, width in LOOKS:
        seen = {"color_scheme": scheme, "viewport": {"width": width, "height": 800}}
        for page in visit(chromium, atlas, reduced_motion="reduce", **seen):
            page.goto(f"{atlas.base}/{path}")
            page.evaluate(OPENED)
            assert (brightness(page) < 60) == (scheme == "dark")
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            found = axe.run(page).response["violations"]
            assert not found, [(v["id"], [n["html"] for n in v["nodes"]]) for v in found]


OPENED = """document.querySelectorAll('details').forEach(
    (d, i) => d.open = i < 12 || d.closest('.statement[open]') !== null)"""


def brightness(page) -> float:
    colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
    return sum(map(int, re.findall(r"\d+", colour)[:3])) / 3


@pytest.mark.timeout(2000)
def test_static_export_opens_from_a_file(chromium, state, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", state)  # what is known already need not run again
    command = [sys.executable, "-m", "vademecum", "atlas", "--export", str(tmp_path / "site")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1900, check=False)
    assert done.returncode == 0, done.stderr
    site = (tmp_path / "site").as_uri()
    with chromium.new_context(offline=True) as context:
        asked, failed = [], []
        context.on("request", lambda r: asked.append(r.url))
        context.on("requestfailed", lambda r: "ABORTED" in r.failure or failed.append(r.url))
        page = context.new_page()
        page.goto(f"{site}/index.html")
        assert look_for(page, "novikov")
        page.keyboard.press("Enter")
        page.wait_for_url(re.compile("/(rooms|source)/"))
        page.goto(f"{site}/rooms/approximation.html")
        picture = page.locator("#picture-regions_while_training")
        picture.get_by_label("data").select_option("moons")
        picture.locator("img[alt*='data moons']").evaluate("image => image.decode()")
        picture.get_by_label("width").press("ArrowLeft")  # the nearest that was drawn
        picture.get_by_text("The nearest position").wait_for()
        page.goto(f"{site}/rooms/connectionism/novikov_bound.html")
        page.locator(".alone img").first.scroll_into_view_if_needed()
        page.locator(".alone img").first.evaluate("image => image.decode()")
        assert "where the formula demands" in page.locator("main").text_content()
        page.goto(f"{site}/errata.html")
        page.get_by_label("weight").select_option("hard")
        assert "not run yet" not in page.locator("#errata").text_content()
        assert all(url.startswith(("file:", "data:")) for url in asked)
        assert not failed
