"""Pages as a reader meets them: rooms, pictures, search, keyboard."""

import pytest

from tests.atlas.browser.conftest import look_for, moved
from tests.conftest import BROWSER
from vademecum import ROOMS
from vademecum.claims import select

pytestmark = BROWSER


def test_home(page, atlas):
    assert page.url == f"{atlas.base}/"  # the token has gone
    assert page.locator("a.card strong").all_text_contents() == list(ROOMS)
    page.locator("#novikov_bound summary h3").click()  # the example opens in place
    page.locator("#novikov_bound").get_by_role("button", name="Break it").first.wait_for()
    page.locator("a.card").first.click()
    page.wait_for_url(f"{atlas.base}/rooms/{ROOMS[0]}")


def test_the_first_picture_plays_at_once(page):
    picture = page.locator(".picture")
    step = picture.get_by_label("step")
    picture.get_by_role("button", name="Play").wait_for()  # it has come to its end
    assert step.input_value() == step.get_attribute("max")
    assert picture.locator("img").get_attribute("src").startswith("/pictures/")  # one was fetched
    page.evaluate(OBSERVED)
    picture.get_by_role("button", name="Play").click()
    picture.get_by_role("button", name="Play").wait_for()
    assert page.evaluate("seen.size") == int(step.get_attribute("max")) + 1


OBSERVED = """() => {
    const image = document.querySelector(".picture img");
    window.seen = new Set();
    new MutationObserver(() => seen.add(image.alt)).observe(image, { attributes: true });
}"""


def test_search(page, atlas):
    found = look_for(page, "hopfeild capacity")  # a slip
    assert "connectionism.hopfield_capacity" in found[0]
    assert page.locator("#search-count").text_content() == f"{len(found)} found"
    assert "0 found" in (look_for(page, "zzzz"), page.locator("#search-count").text_content())[1]
    assert any("theta" not in text for text in look_for(page, "theta"))
    assert look_for(page, "B-049")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowUp")
    box = page.locator("#search")
    assert box.get_attribute("aria-activedescendant") == "result-0"
    assert box.get_attribute("aria-expanded") == "true"
    page.keyboard.press("Escape")
    assert not page.locator("#results").is_visible()
    look_for(page, "cover counting B-049")
    page.keyboard.press("Enter")
    page.wait_for_url(f"{atlas.base}/rooms/connectionism/cover_counting")


@pytest.mark.parametrize("room", ROOMS)
def test_every_room(page, atlas, room):
    page.goto(f"{atlas.base}/rooms/{room}")
    claims = select(f"{room}.*")
    assert page.locator("details.statement").count() == len(claims)
    assert page.evaluate("document.documentElement.scrollHeight") < 6 * 720
    page.goto(f"{atlas.base}/rooms/{room}#{claims[0].id.partition('.')[2]}")
    page.locator("details.statement[open] .body").wait_for()
    page.evaluate("document.querySelectorAll('.chapter').forEach((c) => (c.open = true))")
    for picture in page.locator(".picture").all():
        picture.scroll_into_view_if_needed()
        picture.locator("img").evaluate("image => image.decode()")
        before = picture.locator("img").get_attribute("alt")
        moved(picture)
        page.wait_for_function(
            "([name, alt]) => document.querySelector(`#${name} img`).alt !== alt",
            arg=[picture.get_attribute("id"), before],
        )


def test_the_address_holds_the_knobs(page, atlas):
    page.goto(f"{atlas.base}/rooms/approximation")
    picture = page.locator("#picture-regions_while_training")
    picture.get_by_label("depth").press("ArrowRight")
    page.wait_for_url("**/rooms/approximation?regions_while_training.depth=3")
    page.reload()
    picture.locator("img[alt*='depth 3']").wait_for()
    assert picture.get_by_label("depth").get_attribute("aria-valuetext").strip() == "3"
    alone = f"{atlas.base}/pictures/approximation/regions_while_training"
    page.goto(f"{alone}?depth=3")
    page.get_by_label("depth").press("ArrowLeft")
    page.wait_for_url(alone)
    assert page.locator(".download").get_attribute("href").endswith("regions_while_training.svg")


def test_the_latest_position_wins(page, atlas):
    page.goto(f"{atlas.base}/pictures/approximation/regions_while_training")
    for _ in range(5):
        page.get_by_label("width").press("ArrowLeft")
    page.locator("img[alt*='width 5']").wait_for()
    page.wait_for_url("**width=5")
    assert page.locator("output").nth(1).text_content() == "5"


def test_errata_filter(page, atlas):
    page.goto(f"{atlas.base}/errata")
    cards = page.locator(".erratum:visible")
    errata = [foil for claim in select() for foil in claim.errata]
    assert cards.count() == len(errata)
    page.get_by_label("weight").select_option("soft")
    assert cards.count() == sum(foil.weight == "soft" for foil in errata)
    page.get_by_label("weight").select_option("")
    page.get_by_label("room").select_option("connectionism")
    page.get_by_label("sheet").select_option("B")
    own = [f for c in select("connectionism.*") for f in c.errata if f.where.startswith("B")]
    assert cards.count() == len(own)
    assert page.locator("#errata-count").text_content() == f"{len(own)} errata"


def test_your_network(page, atlas):
    page.goto(f"{atlas.base}/network")
    text = page.locator("main").text_content()
    assert "model.py:net" in text
    assert "35" in page.locator("dl.numbers dd").first.text_content()
    assert page.locator(".laws li", has_text="kept").count() >= 8


def test_a_source_page_shows_the_line(page, atlas):
    page.goto(f"{atlas.base}/rooms/connectionism/novikov_bound")
    page.get_by_text("novikov_bound", exact=True).locator("xpath=ancestor::a").first.click()
    page.wait_for_url(f"{atlas.base}/source/vademecum.connectionism.claims.novikov#L*")
    assert page.locator(f"[id='{page.url.rpartition('#')[2]}']").count() == 1
    assert "def novikov_bound" in page.locator(".source").text_content()


def test_keyboard_reaches_the_content(page):
    page.keyboard.press("Tab")
    page.wait_for_function("document.activeElement.className === 'skip'")
    page.keyboard.press("Enter")
    page.wait_for_url("**#main")


def test_projector(page, atlas):
    page.goto(f"{atlas.base}/rooms/tooling")
    shown = page.locator("dialog.stage .slide > *")
    page.keyboard.press("p")
    shown.wait_for()
    first = shown.get_attribute("id")
    page.keyboard.press("ArrowRight")
    assert shown.count() == 1
    assert shown.get_attribute("id") != first
    page.keyboard.press("ArrowLeft")
    assert shown.get_attribute("id") == first
    page.keyboard.press("Escape")
    page.locator(f".text #{first}").wait_for()  # back in its place
    assert not page.locator("dialog.stage").is_visible()
    page.goto(f"{atlas.base}/errata")
    page.get_by_label("weight").select_option("soft")
    page.locator("#projector").click()  # shows what the filter lets through
    soft = sum(foil.weight == "soft" for claim in select() for foil in claim.errata)
    page.locator("dialog.stage .note").filter(has_text=f"1 of {soft}").wait_for()
