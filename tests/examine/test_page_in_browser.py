"""The page on wide and narrow screens, light and dark, and on paper."""

import pytest
import torch
from torch import nn

from tests.conftest import BROWSER
from vademecum.examine import examine

pytestmark = BROWSER


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    draw = torch.Generator().manual_seed(0)
    x, y = torch.randn(60, 4, generator=draw), torch.arange(60) % 3
    return examine(model, x, y, generator=draw).save(tmp_path_factory.mktemp("dossier"))


@pytest.mark.parametrize("width", [1200, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_fit_their_screens(chromium, page, width, scheme):
    context = chromium.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
    tab = context.new_page()
    said: list[str] = []
    tab.on("console", lambda message: said.append(message.text))
    tab.goto(page.as_uri())
    wide = tab.evaluate("document.documentElement.scrollWidth")
    shown = tab.evaluate("[...document.images].every(i => i.complete && i.naturalWidth > 0)")
    ground = tab.evaluate("getComputedStyle(document.body).backgroundColor")
    context.close()
    assert wide <= width
    assert shown
    assert (ground == "rgb(255, 255, 255)") == (scheme == "light")
    assert not said


def test_the_page_prints(chromium, page, tmp_path):
    tab = chromium.new_page()
    tab.goto(page.as_uri())
    tab.pdf(path=str(tmp_path / "page.pdf"), format="A4")
    tab.close()
    assert (tmp_path / "page.pdf").read_bytes().startswith(b"%PDF")
