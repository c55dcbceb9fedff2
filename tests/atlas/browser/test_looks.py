"""Every kind of page on phones, dark and light, before axe."""

import re

import pytest

from tests.atlas.browser.conftest import visit
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
