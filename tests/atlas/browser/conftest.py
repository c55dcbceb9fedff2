"""A running atlas and a browser, with no host but ours to ask."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.atlas.conftest import Served, serve


@pytest.fixture(scope="session")
def atlas(state, tmp_path_factory) -> Iterator[Served]:
    path = tmp_path_factory.mktemp("network") / "model.py"
    path.write_text("from torch import nn\nnet = nn.Sequential(nn.Linear(6, 5), nn.Tanh())\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", state)
        yield from serve("--network", f"{path}:net")


@pytest.fixture
def page(chromium, atlas) -> Iterator[Any]:
    """A visitor who opened the printed address; fails if the page asks any other host."""
    yield from visit(chromium, atlas)


def visit(chromium, atlas: Served, **options) -> Iterator[Any]:
    context = chromium.new_context(**options)
    context.set_default_timeout(60_000)
    asked, errors = [], []
    context.on("request", lambda request: asked.append(request.url))
    page = context.new_page()
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(atlas.address)
    yield page
    context.close()
    ours = [url.startswith((atlas.base, "data:", "blob:")) for url in asked]
    assert ours and all(ours) and not errors  # noqa: PT018


def look_for(page, text: str) -> list[str]:
    page.keyboard.press("/")
    page.locator("#search").fill(text)
    page.locator("#search-count").filter(has_text=" found").wait_for()
    return page.locator("#results li").all_text_contents()


def moved(picture) -> None:
    """Move the first control of a picture by one position."""
    control = picture.locator("[data-knob]").first
    if control.evaluate("c => c.tagName") == "SELECT":
        control.select_option(index=control.evaluate("c => (c.selectedIndex === 1 ? 0 : 1)"))
    else:
        at, end = control.input_value(), control.get_attribute("max")
        control.press("ArrowLeft" if at == end else "ArrowRight")
