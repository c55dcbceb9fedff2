"""Claims run and broken from a page, and what it says when it gets no answer."""

import re
import subprocess
import sys
import textwrap

from tests.atlas.browser.conftest import moved, visit
from tests.atlas.conftest import Served
from tests.conftest import BROWSER
from vademecum.claims import select

pytestmark = BROWSER


def test_copying_as_python(page, atlas):
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.goto(f"{atlas.base}/rooms/connectionism/novikov_bound")
    page.get_by_text("Run it with other numbers").click()
    page.get_by_label("seed").fill("7")
    page.get_by_label("power").fill("1.5")
    page.get_by_role("button", name="Copy as Python").click()
    page.get_by_role("button", name="Copied").wait_for()
    code = page.evaluate("navigator.clipboard.readText()")
    assert code.endswith("print(claim.run(7, power=1.5))")
    page.goto(f"{atlas.base}/rooms/connectionism/cover_counting")
    page.get_by_text("Run it with other numbers").click()
    page.get_by_label("formula").select_option(index=1)  # a function, which a foil has
    page.get_by_role("button", name="Copy as Python").click()
    page.get_by_role("button", name="Copied").wait_for()
    said = subprocess.run(
        [sys.executable, "-c", page.evaluate("navigator.clipboard.readText()")],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert "refuted" in said


def test_running_and_breaking_a_claim(page, atlas):
    page.goto(f"{atlas.base}/rooms/connectionism#novikov_bound")
    page.locator("#novikov_bound .trial summary").click()
    form = page.locator("#novikov_bound .trial form")
    form.get_by_label("seed").fill("7")
    form.get_by_role("button", name="Run").click()
    outcome = form.locator(".outcome")
    outcome.locator(".verdict.holds").wait_for()
    assert "seed 7" in outcome.text_content()
    assert outcome.locator("img").get_attribute("alt")
    form.get_by_label("power").fill("1")
    form.get_by_role("button", name="Run").click()
    outcome.locator(".verdict.refuted").wait_for()
    form.get_by_label("power").fill("")
    form.get_by_role("button", name="Run").click()
    outcome.get_by_text("knob power must be like").wait_for()
    foil = page.locator("#novikov_bound .foil").last
    foil.get_by_role("button", name="Break it").click()
    foil.locator(".counterexample").wait_for()
    assert "where the formula demands" in foil.text_content()
    assert foil.locator("td.failed").count()


def test_running_the_checks(page, atlas):
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
    assert re.match(rf"\d+ of {total} claims, then stopped: \d+ hold", text.text_content())
    assert "Not holding" not in text.text_content()


def test_a_server_that_has_gone_is_missed_in_words(page, atlas):
    page.goto(f"{atlas.base}/rooms/connectionism#novikov_bound")
    page.context.set_offline(True)
    foil = page.locator("#novikov_bound .foil").first
    foil.get_by_role("button", name="Break it").click()
    foil.get_by_text("The atlas does not answer").wait_for()
    picture = page.locator(".picture").first
    moved(picture)
    picture.get_by_text("The atlas does not answer").wait_for()


def test_a_claim_that_hangs_does_not_take_the_page_down(chromium, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    script = tmp_path / "small_atlas.py"
    script.write_text(
        textwrap.dedent("""
        import uvicorn, tests.fake_claims
        from vademecum.atlas.application import application
        from vademecum.atlas.drawings import Drawings
        from vademecum.atlas.server import _bind, prepare
        from vademecum.atlas.verdicts import Verdicts
        from vademecum.claims.ledger import LEDGER

        if __name__ == "__main__":
            prepare()
            bound = _bind("127.0.0.1", 0)
            host = "127.0.0.1:%d" % bound.getsockname()[1]
            fakes = [c for c in LEDGER.values() if c.room == "fake_claims"]
            app = application(Verdicts(fakes, limit=20.0), Drawings(1), token="t", hosts=[host])
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
            for name, verdict in (("hangs", "overdue"), ("crashes", "broken"), ("true", "holds")):
                page.goto(f"{address.partition('/?')[0]}/rooms/fake_claims/{name}")
                form = page.locator(".trial form")
                page.locator(".trial summary").click()
                form.get_by_role("button", name="Run").click()
                form.locator(".outcome .verdict").wait_for()
                assert verdict in form.locator(".outcome .verdict").text_content()
    finally:
        process.terminate()
        process.wait(20)
        process.stdout.close()
