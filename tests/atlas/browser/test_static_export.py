"""The pages as files, opened without a server: last, when the running atlas knows most verdicts."""

import re

import pytest

from tests.atlas.browser.conftest import look_for
from tests.conftest import BROWSER

pytestmark = BROWSER


@pytest.mark.timeout(2000)
def test_static_export_opens_from_a_file(chromium, site):
    start = site.folder.as_uri()
    with chromium.new_context(offline=True) as context:
        asked, failed = [], []
        context.on("request", lambda r: asked.append(r.url))
        context.on("requestfailed", lambda r: "ABORTED" in r.failure or failed.append(r.url))
        page = context.new_page()
        page.goto(f"{start}/index.html")
        assert look_for(page, "novikov")
        page.keyboard.press("Enter")
        page.wait_for_url(re.compile("/(rooms|source)/"))
        page.goto(f"{start}/rooms/approximation.html")
        picture = page.locator("#picture-regions_while_training")
        picture.get_by_label("data").select_option("moons")
        picture.locator("img[alt*='data moons']").evaluate("image => image.decode()")
        picture.get_by_label("width").press("ArrowLeft")  # the nearest that was drawn
        picture.get_by_text("The nearest position").wait_for()
        page.goto(f"{start}/rooms/connectionism/novikov_bound.html")
        page.locator(".alone img").first.scroll_into_view_if_needed()
        page.locator(".alone img").first.evaluate("image => image.decode()")
        assert "where the formula demands" in page.locator("main").text_content()
        page.goto(f"{start}/errata.html")
        page.get_by_label("weight").select_option("hard")
        assert "not run yet" not in page.locator("#errata").text_content()
        assert all(url.startswith(("file:", "data:")) for url in asked)
        assert not failed
