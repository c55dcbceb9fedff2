"""Formulas as Chromium shows them with the font that we bring: what stands where."""

import shutil
from pathlib import Path

import pytest

from tests.conftest import BROWSER
from vademecum.typeset import FONT, mathml

pytestmark = BROWSER
FENCED = [
    (r"\|w\|^2", "‖‖"),
    (r"\{0,1\}^n", "{}"),
    (r"\binom nk", "()"),
    (r"\left(\frac ab\right)^2", "()"),
    (r"\big(\tfrac ab\big)^2", "()"),
    (r"\begin{pmatrix} a & b \\ c & d \end{pmatrix}", "()"),
]
LEVEL = [r"x^2 d^2 W^2 f^2 (a)^2 \|w\|^2 \hat x^2", r"x_2 y_2 p_2 \beta_2 f_2 (a)_2 \hat y_2"]
MEASURE = """math => {
  const box = e => { const {top, bottom, left, right} = e.getBoundingClientRect();
                     return {top, bottom, left, right}; };
  const script = math.querySelector(':scope > msup > :nth-child(2)');
  return {em: parseFloat(getComputedStyle(math).fontSize), script: script && box(script),
    signs: [...math.querySelectorAll('mo')].filter(e => '‖{}()'.includes(e.textContent)).map(box)};
}"""


@pytest.fixture(scope="module")
def shown(chromium, tmp_path_factory):
    """A page of formulas in headless Chromium, and what it asked for."""
    folder = tmp_path_factory.mktemp("page")
    for name in ("maths.css", "maths.woff"):
        shutil.copy(FONT / name, folder)
    tests = [*(tex for tex, _ in FENCED), r"\sqrt x + 1", r"\mathrm{tr} \Theta", *LEVEL]
    body = "".join(f"<p>{mathml(tex, block=block)}" for block in (False, True) for tex in tests)
    head = '<!doctype html><meta charset="utf-8"><link rel="stylesheet" href="maths.css">'
    (folder / "page.html").write_text(f'{head}<body style="font-size: 40px">{body}')
    page, asked = chromium.new_page(), []
    page.on("request", lambda request: asked.append(request.url))
    page.goto((folder / "page.html").as_uri())
    page.evaluate("document.fonts.ready")
    yield page, asked, tests
    page.close()


def test_fences_in_a_browser(shown):
    page, _, tests = shown
    found = [math.evaluate(MEASURE) for math in page.query_selector_all("math")]
    assert len(found) == 2 * len(tests)
    for i, got in enumerate(found):
        tex = tests[i % len(tests)]
        if tex not in dict(FENCED):
            continue
        first, last = got["signs"]
        em = got["em"]
        assert abs(first["top"] - last["top"]) < 0.02 * em, tex
        assert abs(first["bottom"] - last["bottom"]) < 0.02 * em, tex
        if got["script"]:
            assert last["top"] - 0.5 * em < got["script"]["top"] < last["top"] + 0.35 * em, tex
            assert last["right"] - 0.1 * em < got["script"]["left"] < last["right"] + 0.2 * em, tex


def test_roots_names_and_hosts_in_a_browser(shown):
    page, asked, _ = shown
    root, name = page.query_selector_all("math")[len(FENCED) : len(FENCED) + 2]
    widths = "e => [...e.children].map(c => c.getBoundingClientRect().width)"
    sign = root.evaluate("e => e.querySelector('msqrt > *').getBoundingClientRect().right")
    end = root.evaluate("e => e.querySelector('msqrt').getBoundingClientRect().right")
    em = float(root.evaluate("e => parseFloat(getComputedStyle(e).fontSize)"))
    assert end - sign < 0.05 * em  # no gap after the root
    assert name.evaluate(widths)[1] == pytest.approx(em / 6, rel=0.05)
    assert page.evaluate("[...document.fonts].map(f => f.status)") == ["loaded"]
    assert all(url.startswith("file://") for url in asked)
    assert {Path(url).name for url in asked} == {"page.html", "maths.css", "maths.woff"}


@pytest.mark.parametrize("tex", LEVEL)
def test_scripts_stand_at_one_height_in_a_browser(shown, tex):
    page, _, tests = shown
    math = page.query_selector_all("math")[tests.index(tex)]
    scripts = "e => [...e.querySelectorAll(':is(msub, msup) > mn')].map"
    tops = math.evaluate(f"{scripts}(c => c.getBoundingClientRect().top)")
    assert len(tops) == 7
    assert max(tops) - min(tops) < 1.5  # pixels, of which a letter has 40
