"""Roots as Chromium prints them: it rounds the bar and its distance to whole pixels of the page."""

from io import BytesIO

import numpy as np
import pytest
from PIL import Image

from tests.conftest import BROWSER
from tests.sheet.test_document import toy
from vademecum.sheet import sheet

pytestmark = BROWSER
SCALE = 16  # by which what was laid out is enlarged, as a printer does
PLACE = """() => {
  const root = document.querySelector('msqrt').getBoundingClientRect();
  const letter = document.querySelector('msqrt > mi').getBoundingClientRect();
  return {x: letter.left, y: root.top, width: letter.width, height: root.height};
}"""


@pytest.mark.parametrize("form", ["cheat", "full"])
@pytest.mark.parametrize("tex", [r"\sqrt n", r"\sqrt\kappa", r"\sqrt d", r"2^{\sqrt m}"])
def test_the_bar_of_a_root_does_not_touch_the_letter(chromium, form, tex):
    claim = toy(f"Two.\n\nIt is ${tex}$ here.", short=tex)
    tab = chromium.new_page(viewport={"width": 1600, "height": 1600})
    tab.emulate_media(media="print")
    tab.set_content(sheet([claim], form=form))
    tab.evaluate("document.fonts.ready")
    place = tab.evaluate(PLACE)
    move = f"scale({SCALE}) translate({4 - place['x']}px, {4 - place['y']}px)"
    tab.evaluate(f"document.body.style.cssText = 'transform-origin: 0 0; transform: {move}'")
    size = {"width": SCALE * place["width"], "height": SCALE * place["height"]}
    shot = tab.screenshot(clip={"x": 4 * SCALE, "y": 4 * SCALE, **size})
    tab.close()
    ink = (np.asarray(Image.open(BytesIO(shot)).convert("L")) < 128).any(axis=1)
    edges = np.flatnonzero(np.diff(np.r_[0, ink, 0]))
    assert len(edges) >= 4, "a bar, and below it a letter"
    assert edges[2] - edges[1] >= SCALE / 5
