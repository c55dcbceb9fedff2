"""The atlas as people see it: in headless Chromium, with no host but ours to ask."""

import re
import shutil
import subprocess
import sys
import textwrap

import pytest

from tests.atlas.conftest import Served, serve
from vademecum import ROOMS
from vademecum.claims import select

playwright = pytest.importorskip("playwright.sync_api")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="needs Debian's chromium"),
    pytest.mark.xdist_group("browser"),
    pytest.mark.slow,
]
FLAGS = ["--no-sandbox", "--disable-background-networking", "--disable-component-update"]


@pytest.fixture(scope="module")
def network_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("network") / "model.py"
    path.write_text("from torch import nn\nnet = nn.Sequential(nn.Linear(6, 5), nn.Tanh())\n")
    return path


@pytest.fixture(scope="module")
def state(tmp_path_factory):
    """Where this module's atlas remembers verdicts."""
    return str(tmp_path_factory.mktemp("state"))


@pytest.fixture(scope="module")
def atlas(state, network_file):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", state)
        yield from serve("--network", f"{network_file}:net")


@pytest.fixture(scope="module")
def chromium():
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def page(chromium, atlas):
    """A visitor who opened the printed address; fails if the page asks any other host."""
    yield from visit(chromium, atlas)


def visit(chromium, atlas: Served, **options):
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


def test_home(page, atlas):
    assert page.url == f"{atlas.base}/"  # the token has gone
    assert page.title() == "Vademecum: the rooms of the course"
    assert page.locator("a.card strong").all_text_contents() == list(ROOMS)
    page.locator("a.card").first.click()
    page.wait_for_url(f"{atlas.base}/rooms/{ROOMS[0]}")


def test_search_filters_at_once(page):
    box = page.get_by_role("searchbox")
    assert not page.locator("#results").is_visible()
    box.press_sequentially("hopfield capacity")
    shown = page.locator("#results li:visible")
    assert "connectionism.hopfield_capacity" in " ".join(shown.all_text_contents())
    assert 0 < shown.count() < page.locator("#results li").count()
    assert page.locator("#search-count").text_content() == f"{shown.count()} found"
    box.fill("zzzz")
    assert page.locator("#search-count").text_content() == "0 found"
    box.fill("B-049")
    shown.first.get_by_role("link").click()
    page.wait_for_url("**#cover_counting")


@pytest.mark.parametrize("room", ROOMS)
def test_every_room(page, atlas, room):
    page.goto(f"{atlas.base}/rooms/{room}")
    claims = select(f"{room}.*")
    assert page.locator("article.statement").count() == len(claims)
    assert page.locator("math").count() > len(claims) / 2
    (live := page.frame_locator(".live iframe").locator("img")).first.wait_for()
    assert all(picture.get_attribute("alt") for picture in live.all())


@pytest.mark.parametrize("room", ROOMS)
def test_every_slider_moves_a_picture(page, atlas, room):
    page.goto(f"{atlas.base}/live/{room}/")
    page.locator("img").first.wait_for()
    sliders = page.get_by_role("slider")
    sliders.nth(1).wait_for()
    for slider in sliders.all():
        slider.focus()
        before = pictures(page)
        at, end = (slider.get_attribute(f"aria-value{name}") for name in ("now", "max"))
        slider.press("ArrowLeft" if at == end else "ArrowRight")
        page.wait_for_function(CHANGED, arg=before)


CHANGED = "before => [...document.images].map(i => i.getAttribute('src')).join() !== before.join()"


def pictures(page) -> list[str]:
    return [picture.get_attribute("src") for picture in page.locator("img").all()]


def test_running_a_claim(page, atlas):
    page.goto(f"{atlas.base}/rooms/connectionism")
    form = page.locator("#novikov_bound form.trial")
    form.get_by_label("seed").fill("7")
    form.get_by_role("button").click()
    outcome = form.locator(".outcome")
    outcome.locator(".verdict").wait_for()
    assert "✓ holds" in outcome.text_content()
    assert "seed 7" in outcome.text_content()
    assert outcome.locator("img").get_attribute("alt")
    form.get_by_label("power").fill("1")
    form.get_by_role("button").click()
    outcome.get_by_text("✗ refuted").wait_for()
    form.get_by_label("power").fill("")
    form.get_by_role("button").click()
    outcome.get_by_text("knob power must be like").wait_for()


def test_running_the_checks(page, atlas):
    page.goto(f"{atlas.base}/")
    total = len(select())
    if not page.locator("#run-checks").is_enabled():  # the run that a first start begins
        page.locator("#stop-checks").click()
    button = page.locator("#run-checks:enabled")
    button.wait_for()
    button.click()
    text = page.locator("#checks-text")
    text.filter(has_text=re.compile(r"[1-9]\d* of .* so far")).wait_for()
    assert page.locator("#checks-bar").evaluate("bar => bar.value / bar.max") > 0
    page.locator("#stop-checks").click()
    button.wait_for()
    assert re.match(rf"\d+ of {total} claims: \d+ hold", text.text_content())
    assert "Not holding" not in text.text_content()


def test_errata_filter(page, atlas):
    page.goto(f"{atlas.base}/errata")
    rows = page.locator("#errata tbody tr:visible")
    errata = [foil for claim in select() for foil in claim.errata]
    assert rows.count() == len(errata)
    page.get_by_label("weight").select_option("soft")
    assert rows.count() == sum(foil.weight == "soft" for foil in errata)
    page.get_by_label("weight").select_option("")
    page.get_by_label("room").select_option("connectionism")
    of_room = [foil for claim in select("connectionism.*") for foil in claim.errata]
    assert rows.count() == len(of_room)
    assert page.locator("#errata-count").text_content() == f"{len(of_room)} errata"


def test_your_network(page, atlas):
    page.goto(f"{atlas.base}/network")
    text = page.locator("main").text_content()
    assert "model.py:net" in text
    assert "35" in page.locator("dl.numbers dd").first.text_content()
    assert page.locator(".laws li", has_text="kept").count() >= 8


def test_a_source_page_shows_the_line(page, atlas):
    page.goto(f"{atlas.base}/rooms/connectionism")
    page.locator("#novikov_bound .code a").first.click()
    page.wait_for_url(f"{atlas.base}/source/vademecum.connectionism.claims.novikov#L*")
    assert page.locator(f"[id='{page.url.rpartition('#')[2]}']").count() == 1
    assert "def novikov_bound" in page.locator(".source").text_content()


def test_keyboard_reaches_the_content(page):
    page.keyboard.press("Tab")
    page.wait_for_function("document.activeElement.className === 'skip'")
    page.keyboard.press("Enter")
    page.wait_for_url("**#main")


def brightness(page) -> float:
    colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
    return sum(map(int, re.findall(r"\d+", colour)[:3])) / 3


@pytest.mark.parametrize("path", ["", "rooms/connectionism", "errata", "network"])
def test_dark_mode_and_phone(chromium, atlas, path):
    for scheme, width in (("dark", 390), ("light", 390), ("dark", 1280)):
        seen = {"color_scheme": scheme, "viewport": {"width": width, "height": 800}}
        for page in visit(chromium, atlas, **seen):
            assert page.goto(f"{atlas.base}/{path}").ok
            assert (brightness(page) < 60) == (scheme == "dark")
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            if path.startswith("rooms"):
                frame = page.frame(url=re.compile("/live/"))
                page.frame_locator("iframe").locator("img").first.wait_for()
                assert frame.evaluate("document.body.dataset.theme") == scheme


@pytest.mark.timeout(1000)
def test_static_export_opens_from_a_file(chromium, state, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", state)  # what is known already need not run again
    command = [sys.executable, "-m", "vademecum", "atlas", "--export", str(tmp_path / "site")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr
    site = (tmp_path / "site").as_uri()
    with chromium.new_context(offline=True) as context:
        asked, failed = [], []
        context.on("request", lambda r: asked.append(r.url))
        context.on("requestfailed", lambda r: "ABORTED" in r.failure or failed.append(r.url))
        page = context.new_page()
        page.goto(f"{site}/index.html")
        page.get_by_role("searchbox").fill("novikov")
        page.locator("#results li:visible a").first.click()
        page.wait_for_url(f"{site}/rooms/connectionism.html#*")
        still, _, _ = page.locator(".still").all()
        still.get_by_role("radio", name="0.5").check()  # of the margin
        assert "0.5" in still.locator("img").get_attribute("alt")
        still.locator("img").evaluate("image => image.decode()")
        still.get_by_role("radio", name="40").check()  # of the dimension
        assert still.get_by_role("radio", name="0.06").is_checked()
        page.locator("#novikov_bound img").scroll_into_view_if_needed()
        page.locator("#novikov_bound img").evaluate("image => image.decode()")
        page.locator("#novikov_bound .code a").first.click()
        assert "def novikov_bound" in page.locator(".source").text_content()
        page.goto(f"{site}/errata.html")
        page.get_by_label("weight").select_option("hard")
        assert "not run yet" not in page.locator("#errata").text_content()
        assert all(url.startswith(("file:", "data:")) for url in asked)
        assert not failed


def test_a_claim_that_hangs_does_not_take_the_page_down(chromium, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    script = tmp_path / "small_atlas.py"
    script.write_text(
        textwrap.dedent("""
        import uvicorn, tests.fake_claims
        from vademecum.atlas.application import application
        from vademecum.atlas.server import _bind
        from vademecum.atlas.verdicts import Verdicts
        from vademecum.claims.ledger import LEDGER

        if __name__ == "__main__":
            bound = _bind("127.0.0.1", 0)
            host = "127.0.0.1:%d" % bound.getsockname()[1]
            fakes = [c for c in LEDGER.values() if c.room == "fake_claims"]
            app = application(Verdicts(fakes, limit=15.0), token="t", hosts=[host])
            print(f"http://{host}/?token=t", flush=True)
            settings = uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=1)
            uvicorn.Server(settings).run(sockets=[bound])
    """)
    )
    process = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True)
    assert process.stdout
    address = process.stdout.readline().strip()
    try:
        for page in visit(chromium, Served(process, address)):
            page.goto(f"{address.partition('/?')[0]}/rooms/fake_claims")
            for name, verdict in (("hangs", "overdue"), ("crashes", "broken"), ("true", "holds")):
                form = page.locator(f"#{name} form.trial")
                form.get_by_role("button").click()
                form.locator(".outcome .verdict").wait_for()
                assert verdict in form.locator(".outcome .verdict").text_content()
    finally:
        process.terminate()
        process.wait(20)
        process.stdout.close()
